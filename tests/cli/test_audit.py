"""`fedrouter audit` as a client runs it, on the journal of a client that has really answered."""

import json
import sqlite3
import stat
from dataclasses import replace

import numpy as np
import pytest

from cli import command
from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import ClusterRequest, KMeansSettings, StatisticsRequest
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.transcript import Recorded, Shown, Transcript
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.rederivation import Rederivation
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.release import ReleaseRequest

MODELS = ("model-0", "model-1", "model-2")


def run(*arguments):
    return command.run("audit", *arguments)


def answer(*arguments):
    return command.answer("audit", *arguments)


@pytest.fixture
def home(tmp_path):
    """A client's folder after three questions; and the reply to the second."""
    journal = Journal(tmp_path / "journal.sqlite")
    client = Client("one", drawn_evaluations(), memory=journal)
    client.answer("hello", HelloRequest())
    replied = client.answer("cluster", ClusterRequest(4, 1, 5, 0))
    client.answer("statistics", StatisticsRequest(replied.centres, MODELS))
    journal.close()
    return tmp_path, replied


def test_lists_every_message_with_totals_and_the_last_fingerprint(home):
    path, replied = home
    found = answer(path)
    assert [one["verb"] for one in found["sent"]] == ["hello", "cluster", "statistics"]
    shapes = {"centres": list(replied.centres.shape), "sizes": [len(replied.sizes)]}
    assert found["sent"][1]["shapes"] == shapes
    assert found["sent"][1]["bytes"] == replied.size == found["totals"]["cluster"]["bytes"]
    assert (found["verified"], found["messages"], found["releases"]) == (True, 3, [])
    assert found["last_fingerprint"] == found["sent"][-1]["fingerprint"]
    assert answer(path / "journal.sqlite")["sent"] == found["sent"]


def test_every_column_that_matters_is_there_at_80_columns(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    journal = Journal(tmp_path / "journal.sqlite")
    privacy = PrivacyPolicy(noise=Noise(12.345), secure_only=False)
    client = Client("one", drawn_evaluations(), privacy, memory=journal)
    client.answer("release", ReleaseRequest(MODELS))
    client.answer("statistics", StatisticsRequest(drawn_evaluations().embeddings[:4], MODELS))
    journal.close()
    shown = run(tmp_path).stdout
    table = shown.split("messages")[0]
    assert "…" not in table
    for entry in answer(tmp_path)["sent"]:
        (line,) = [each for each in table.splitlines() if each.startswith(f"{entry['number']} ")]
        for part in (
            entry["verb"],
            f"{entry['bytes']:,}",
            f"{(entry['spent'] or {}).get('epsilon', 0):.3g}",
            entry["time"][:10],
        ):
            assert part in line


def test_tells_a_person_that_the_chain_holds_and_what_it_cannot_show(home):
    path, _ = home
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert "the chain of fingerprints holds" in done.stdout
    assert "cannot detect" in done.stdout
    assert answer(path)["last_fingerprint"] in done.stdout


def test_shows_one_message_whole(home):
    path, replied = home
    found = answer(path, "--show", 2)
    assert np.array_equal(np.array(found["arrays"]["centres"]["values"], np.float32), replied.centres)
    assert found["arrays"]["sizes"]["values"] == replied.sizes.tolist()
    sums = answer(path, "--show", 3)["arrays"]
    assert sums["accuracy"]["kind"] == "exact sums"
    assert np.sum(sums["accuracy"]["values"]) <= np.sum(sums["count"]["values"]) <= len(drawn_evaluations())
    assert answer(path, "--show", 1)["scalars"]["models"] == list(MODELS)
    assert "centres" in run(path, "--show", 2).stdout


def test_writes_one_message_to_files(home):
    path, replied = home
    out = path / "second.npz"
    done = run(path, "--show", 2, "--out", out)
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        assert np.array_equal(arrays["centres"], replied.centres)
    assert json.loads(out.with_suffix(".json").read_text())["verb"] == "cluster"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert run(path, "--show", 2, "--out", out).returncode == 2


def test_a_journal_that_was_edited_is_refused(home):
    path, _ = home
    with sqlite3.connect(path / "journal.sqlite") as database:
        database.execute("DROP TRIGGER sent_is_never_changed")
        database.execute("UPDATE sent SET bytes = 1 WHERE number = 2")
    database.close()
    done = run(path)
    assert done.returncode == 2
    assert "message 2 is missing or is not as it was written" in done.stderr


def test_the_epsilon_of_each_release_is_shown_and_they_add_up(tmp_path):
    pytest.importorskip("opendp")
    journal = Journal(tmp_path / "journal.sqlite")
    client = Client("one", drawn_evaluations(), PrivacyPolicy(noise=Noise(5.0), secure_only=False), journal)
    client.answer("hello", HelloRequest())
    for _ in range(2):
        client.answer("release", ReleaseRequest(MODELS))
    shown, found = run(tmp_path).stdout, answer(tmp_path)
    assert [one["spent"] and one["spent"]["epsilon"] for one in found["sent"]] == [None, 5.0, 5.0]
    assert found["releases"] == [{"epsilon": 5.0, "delta": 1e-6}] * 2
    assert "Releases: 2; together ε 10 at most" in shown
    bare = Client("one", drawn_evaluations(), PrivacyPolicy(noise=None, secure_only=False), journal)
    bare.answer("release", ReleaseRequest(MODELS))
    journal.close()
    assert "no ε holds" in run(tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("--show", 9), "no message number 9"), (("--out", "x.npz"), "--out goes with --show")],
)
def test_what_cannot_be_shown_is_one_line(home, arguments, expected):
    path, _ = home
    done = run(path, *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert expected in done.stderr


def test_a_folder_without_a_journal_is_refused_and_left_alone(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2
    assert "no journal" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_question_is_shown_with_the_coordinators_signature_of_it(tmp_path):
    """Of a run under secure sums, as a deployed client follows it; and what an edited statement is shown as."""
    pytest.importorskip("cryptography")
    from fedrouter.deployment.state.credentials import question_signer, question_verifier
    from fedrouter.deployment.state.directories import create_client, create_coordinator
    from fedrouter.federation.secagg.server import Secure

    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    home = create_client(tmp_path / "one", "one", "localhost:9092", coordinator.authority)
    journal, verify = Journal(home.journal), question_verifier(home.authority)
    names = ("one", "two", "three")
    clients = [
        Client(
            name,
            drawn_evaluations(seed=seed),
            memory=journal if name == "one" else None,
            rederivation=Rederivation(name, verify=verify),
        )
        for seed, name in enumerate(names)
    ]
    transcript = Transcript(sign=question_signer(coordinator.authority_key))
    settings = KMeansSettings(3, 4)
    pool = clients[0]._evaluations.pool
    transcript.begin("kmeans", settings.to_json(), 0, pool, sorted(names))
    shown = Recorded(Shown(Secure(LocalFederation(clients)), transcript), transcript)
    FAMILIES["kmeans"].learn(shown, pool, settings)
    asked = {one["verb"]: one["number"] for one in answer(home.path)["asked"]}
    found = answer(home.path, "--asked", asked["statistics"])
    statement = found["signed_in"]
    assert answer(home.path, "--asked", statement)["verb"] == "follow"
    assert answer(home.path, "--asked", statement)["signed_in"] == statement
    assert found["digest"] in answer(home.path, "--asked", statement)["scalars"]["asked"][-1]
    assert answer(home.path, "--asked", asked["keys"])["signed_in"] is None
    assert "the signature is valid" in run(home.path, "--asked", asked["statistics"]).stdout
    # A statement of somebody else: signed with another key, and so no proof of anything.
    other = create_coordinator(tmp_path / "other", ("localhost",))
    forged = replace(transcript.question(names).request, signature="")
    forged = replace(forged, signature=question_signer(other.authority_key)(forged.statement()).hex())
    with pytest.raises(Refused):
        clients[0].answer("follow", forged)
    journal.close()
    last = answer(home.path)["asked"][-1]
    assert (last["verb"], last["outcome"]) == ("follow", "refused")
    assert answer(home.path, "--asked", last["number"])["signed_in"] is None
    assert "no valid signature" in run(home.path, "--asked", last["number"]).stdout
