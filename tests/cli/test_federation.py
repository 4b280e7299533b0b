"""`fedrouter federation` as a user types it, as far as no process has to stay; the rest is in tests/deployment."""

import json
from datetime import timedelta

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from cli.command import run
from fedrouter.cli.federation.run import EXCHANGES as SHOWN
from fedrouter.deployment import credentials
from fedrouter.deployment.address import free_port
from fedrouter.deployment.directories import create_coordinator, create_member, open_member
from fedrouter.deployment.invitation import Invitation
from fedrouter.encoders import EncoderIdentity
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


def test_a_run_needs_members_and_the_coordinators_process(coordinator, member, tmp_path):
    assert "at least 3 members, 0 are approved; `fedrouter federation approve" in refused("run", coordinator)
    invited = Invitation.unpack((coordinator / "invitation").read_text().strip())
    more = [create_member(tmp_path / name, invited, name, ["a"], {"log": "x", "encoder": "static"}) for name in "cd"]
    answered("approve", coordinator, member / "request", *(each.request for each in more))
    assert f"fedrouter federation coordinator {coordinator}" in refused("run", coordinator)
    assert "expected the coordinator's" in refused("run", member)


def test_a_member_does_not_start_with_a_policy_or_a_log_that_cannot_be_read(member, tmp_path):
    """Its owner sees at once what an epoch would end with."""
    assert "log.csv: cannot be read" in refused("member", member)
    (tmp_path / "log.csv").write_text("prompt,model,accuracy,cost\n")
    with (member / "policy.yaml").open("a") as file:
        file.write("least_members: 2\n")
    assert "policy, least_members: expected at least 3" in refused("member", member)


def test_what_has_expired_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "LIFETIME", timedelta(seconds=-1))
    path = tmp_path / "old"
    settings = {"epsilon": 8.0, "delta": 1e-6, "days": 7}
    create_coordinator(path, ["localhost"], 9092, free_port(), EncoderIdentity("static", 256, True), settings)
    assert "has expired" in refused("join", path / "invitation", "--log", "log.csv", "--dir", tmp_path / "new")
    said = refused("coordinator", path)
    assert "server.pem: expired on" in said
    assert "fedrouter federation init" in said


def test_audit_at_top_level_says_where_it_went():
    done = run("audit", "bank")
    assert (done.returncode, "fedrouter federation audit DIR" in done.stderr) == (2, True)


def test_every_exchange_is_shown_in_words():
    assert list(SHOWN) == [*EXCHANGES, "total"]
