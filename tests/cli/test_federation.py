"""`fedrouter federation` as a user types it, as far as no process has to stay; the rest is in tests/deployment."""

import json

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from cli.command import run
from fedrouter.cli.federation.group import REMOVED
from fedrouter.cli.federation.run import EXCHANGES as SHOWN
from fedrouter.deployment.directories import create_member, open_member
from fedrouter.deployment.invitation import Invitation
from fedrouter.federation.member import EXCHANGES


@pytest.fixture
def coordinator(tmp_path):
    answered("init", tmp_path / "coordinator", "--host", "router.example.org", "--port", 9999)
    return tmp_path / "coordinator"


@pytest.fixture
def member(coordinator, tmp_path):
    """A member that has joined, and does not run."""
    invited = Invitation.unpack((coordinator / "invitation").read_text().strip())
    settings = {"log": str(tmp_path / "log.csv"), "encoder": "static"}
    return create_member(tmp_path / "bank", invited, "bank", ["a", "b"], settings).path


def answered(*words):
    done = run("federation", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*words):
    done = run("federation", *words)
    assert done.returncode == 2, done.stdout
    return done.stderr


def test_init_makes_a_directory_and_shows_no_secret(coordinator):
    done = run("federation", "init", coordinator.with_name("other"), "--host", "localhost")
    for file in coordinator.with_name("other").glob("*.key"):
        assert file.read_text().splitlines()[1] not in done.stdout
    told = answered("status", coordinator)
    assert (told["running"], told["members"], told["epochs"]) == (False, [], [])
    assert told["invitation"] == (coordinator / "invitation").read_text().strip()
    assert "not empty" in refused("init", coordinator, "--host", "localhost")
    assert "without a port" in refused("init", coordinator.with_name("third"), "--host", "router:9092")


def test_a_coordinator_approves_by_request_and_both_show_one_fingerprint(coordinator, member):
    approved = answered("approve", coordinator, member / "request")["members"]
    assert approved == {"bank": open_member(member).fingerprint}
    assert answered("status", member)["fingerprint"] == approved["bank"]
    assert answered("approve", coordinator, (member / "request").read_text().strip())["members"] == approved
    assert answered("approve", coordinator, "--remove", "bank")["members"] == {}
    assert "not on the roster" in refused("approve", coordinator, "--remove", "bank")
    assert "by their requests" in refused("approve", coordinator, "--all")


def test_another_member_of_the_same_name_is_refused(coordinator, member, tmp_path):
    answered("approve", coordinator, member / "request")
    invited = Invitation.unpack((coordinator / "invitation").read_text().strip())
    other = create_member(tmp_path / "other", invited, "bank", ["a"], {"log": "x", "encoder": "static"})
    assert "with another key" in refused("approve", coordinator, other.request)


def test_a_member_before_its_first_epoch(member):
    told = answered("status", member)
    assert (told["totals"], told["trusted"], told["verdict"], told["refusals"]) == ([], [], None, [])
    assert answered("audit", member)["sent"] == []
    assert "no total yet" in refused("verify", member)
    assert "not a member of the last epoch" in refused("approve", member, "clinic")
    assert answered("stop", member)["stopped"] is False


def test_join_reads_the_log_before_it_makes_anything(coordinator, tmp_path):
    target = tmp_path / "new"
    missing = ("--log", tmp_path / "no.csv", "--dir", target)
    assert "no.csv" in refused("join", coordinator / "invitation", *missing)
    assert "whole and unchanged" in refused("join", "fedrouter-invitation-x", *missing)
    assert not target.exists()


def test_a_run_needs_the_coordinators_process(coordinator, member):
    assert f"fedrouter federation coordinator {coordinator}" in refused("run", coordinator)
    assert "expected the coordinator's" in refused("run", member)


@pytest.mark.parametrize("command", REMOVED)
def test_a_command_that_was_removed_says_what_replaced_it(command):
    said = refused(command, "x")
    assert said.count("\n") == 1
    assert f"federation {command}: removed; " in said


def test_audit_at_top_level_says_where_it_went():
    done = run("audit", "bank")
    assert (done.returncode, "fedrouter federation audit DIR" in done.stderr) == (2, True)


def test_every_exchange_is_shown_in_words():
    assert list(SHOWN) == [*EXCHANGES, "total"]
