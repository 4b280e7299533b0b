"""`fedrouter federation` as a user types it, as far as no process has to stay; the rest is in tests/deployment."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from typer.testing import CliRunner

from cli.command import run
from fedrouter.cli.federation.manage import REMOVED, app
from fedrouter.cli.federation.work import protection, with_privacy
from fedrouter.deployment.client.local_client import privacy_of
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.config import ClientConfig
from fedrouter.deployment.state.directories import open_client
from fedrouter.deployment.state.process_lock import process_lock
from fedrouter.errors import FedrouterError
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.policy import PrivacyPolicy


@pytest.fixture
def directories(tmp_path):
    """The state directories of a coordinator and a client, as a user creates them."""
    made = answered("init", tmp_path / "coordinator", "--host", "router.example.org", "--port", 9999)
    ca = ("--ca", made["ca"], "--coordinator", made["address"])
    client = answered("init", tmp_path / "client", "--client", "north", *ca)
    return made, client


def answered(*arguments):
    """What a command says to a machine."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


def refused(*arguments):
    """In what words a command is refused; `fedrouter` makes one line of them."""
    with pytest.raises(FedrouterError) as error:
        CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    return str(error.value)


def test_init_creates_directories_and_shows_no_secret(directories, tmp_path):
    made, client = directories
    assert made["address"] == client["coordinator"] == "router.example.org:9999"
    assert made["listen"] == "0.0.0.0:9999"
    assert made["authority"] == client["authority"]
    for line in (tmp_path / "client" / "client.key").read_text().splitlines()[1:-1]:
        assert line not in str(client)


def test_a_client_is_enrolled_and_unenrolled_while_the_coordinator_does_not_run(directories):
    made, client = directories
    enrolled = answered("enroll", made["home"], "north", client["public_key"])
    assert enrolled == {"name": "north", "key": client["key"], "node": None}
    status = answered("status", made["home"])
    assert not status["running"]
    assert status["clients"] == [{"name": "north", "online": None, "since": None, "key": client["key"]}]
    assert "already on the roster" in refused("enroll", made["home"], "north", client["public_key"])
    assert "as 'north'" in refused("enroll", made["home"], "south", client["public_key"])
    answered("unenroll", made["home"], "north")
    assert answered("status", made["home"])["clients"] == []
    assert "not on the roster" in refused("unenroll", made["home"], "north")


def test_what_does_not_fit_together_is_said_in_a_line(directories, tmp_path):
    made, client = directories
    assert "not empty" in refused("init", made["home"], "--host", "other.example.org")
    assert "--host" in refused("init", tmp_path / "new")
    assert "needs --coordinator" in refused("init", tmp_path / "new", "--client", "north")
    assert "private key" in refused("enroll", made["home"], "north", tmp_path / "client" / "client.key")
    assert "state directory of a client" in refused("coordinator", client["home"])
    assert "state directory of the coordinator" in refused("client", made["home"], "--log", "log.parquet")
    assert "--log FILE or --store URL" in refused("client", client["home"])
    assert "expected one of them" in refused("client", client["home"], "--log", "a", "--store", "sqlite:///b")
    assert "epsilon" in refused("client", client["home"], "--log", "a", "--epsilon", -1)
    assert "not a state directory" in refused("status", tmp_path)
    assert "--bundle goes with" in refused("run", made["home"], "--add-model", "m")
    assert "expected one of" in refused("run", made["home"], "--router", "no-such")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", REMOVED)
def test_a_command_that_was_removed_says_what_to_do_instead(name, tmp_path):
    assert refused(name, tmp_path, "--older", "9d") == f"federation {name}: removed; {REMOVED[name]}"


def test_a_client_whose_log_cannot_be_read_does_not_start(directories, tmp_path):
    _, client = directories
    (tmp_path / "log.csv").write_text("a,b\n1,2\n")
    assert "wrong columns" in refused("client", client["home"], "--log", tmp_path / "log.csv")
    assert answered("status", client["home"])["log"] is None


def test_a_run_without_a_coordinator_says_how_to_start_one(directories):
    made, _ = directories
    assert "fedrouter federation coordinator" in refused("run", made["home"], "--router", "kmeans")
    assert answered("status", made["home"])["runs"] == []  # a refused start changes nothing


def test_too_few_clients_for_secure_sums_are_refused_before_the_run_starts(directories):
    made, _ = directories
    assert "secure sums need at least 3 clients" in refused("run", made["home"], "--clients", "north,south")
    assert "fedrouter federation coordinator" in refused("run", made["home"], "--clients", "north,south", "--plain")


def test_a_client_says_what_protects_it(directories):
    config = open_client(Path(directories[1]["home"])).config()
    assert protection(config) == (
        "Protection: noise of ε 8 on each release, and ε adds up, at least 5 queries behind anything else, "
        "under secure sums only"
    )
    bare = replace(config, privacy={"noise": None, "secure_only": False})
    assert protection(bare).startswith("Protection: no noise, ")
    assert protection(bare).endswith("sums in the clear are allowed")


def test_noise_can_be_chosen_and_turned_off():
    chosen = with_privacy({}, None, None, 2.0)
    assert chosen["noise"] == {"epsilon": 2.0}
    for given, meant in ((chosen, Noise(2.0)), (with_privacy(chosen, None, None, 0.0), None)):
        assert privacy_of(ClientConfig("north", "localhost:1", privacy=given)) == PrivacyPolicy(noise=meant)


def test_scheduled_runs_go_on_after_one_that_fails(directories, monkeypatch):
    made, _ = directories
    waited = []

    def wait(seconds):
        waited.append(seconds)
        if len(waited) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("fedrouter.cli.federation.run.time.sleep", wait)
    done = CliRunner().invoke(app, ["run", made["home"], "--router", "kmeans", "--every", "12h", "--json"])
    assert done.exit_code == 130
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["does not answer" in line["error"] for line in lines] == [True, True]
    assert all(0 < seconds <= 12 * 3600 for seconds in waited)
    assert "like 30m" in refused("run", made["home"], "--every", "soon")
    assert "does not go with" in refused("run", made["home"], "--every", "1d", "--name", "x")


def test_a_refused_start_changes_nothing(directories, tmp_path):
    made, client = directories
    before = (Path(made["home"]) / "federation.json").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "another program listens there" in refused("coordinator", made["home"], "--listen", address)
    with process_lock(Path(made["home"]) / "coordinator.pid"):
        assert "already running" in refused("coordinator", made["home"], "--listen", "127.0.0.1:1")
    assert (Path(made["home"]) / "federation.json").read_bytes() == before
    (tmp_path / "log.csv").write_text("prompt,embedding,model,accuracy,cost\n" + 'a,"[1.0, 0.0]",m,1,0.1\n')
    before = (Path(client["home"]) / "client.json").read_bytes()
    with process_lock(Path(client["home"]) / "client.pid"):
        assert "already running" in refused("client", client["home"], "--log", tmp_path / "log.csv")
    (Path(client["home"]) / "journal.sqlite").mkdir()
    assert "journal.sqlite: cannot be" in refused("client", client["home"], "--log", tmp_path / "log.csv")
    assert (Path(client["home"]) / "client.json").read_bytes() == before


def test_status_shows_every_column_at_80_columns(directories, tmp_path, monkeypatch):
    made, client = directories
    name = "a-client-with-a-name-of-sixty-four-letters-which-is-the-longest"
    answered("enroll", made["home"], name, client["public_key"])
    for number, why in enumerate(("the quorum is 2; what was learned so far is kept, and goes on from there", "x")):
        folder = Path(made["home"]) / "runs" / f"nightly-learning-of-the-auto-router-{number}"
        jobs.write(Job(), folder)
        ProgressLog(folder).write("failed", why=why)
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["status", made["home"]], catch_exceptions=False).stdout
    assert "…" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if "fedrouter" not in line)
    assert [run["name"] for run in answered("status", made["home"])["runs"]][1].endswith("router-1")
    for part in (name[:40], name[-4:], "nightly-learning", "router-1", "unknown", "failed:", "quorum", "there"):
        assert part in shown


def test_the_command_is_there_and_an_error_is_one_line(tmp_path):
    done = run("federation", "status", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error ")
    assert "Traceback" not in done.stderr


def test_stop_where_nothing_runs_is_no_error(directories):
    made, client = directories
    assert answered("stop", made["home"])["stopped"] is False
    status = answered("status", client["home"])
    assert (status["running"], status["reachable"]) == (False, False)
    assert answered("stop", client["home"])["stopped"] is False
