"""A full disk, a slow member, nobody there: an epoch ends in time, with a total or a clear error, and goes on."""

import os
import resource
import signal

import pytest

pytest.importorskip("flwr")

from deployment.real_federation import NAMES, RealFederation, write_logs

pytestmark = pytest.mark.slow


@pytest.fixture
def federation(tmp_path):
    write_logs(tmp_path)
    with RealFederation(tmp_path) as found:
        found.form()
        yield found


def at(exchange, do):
    """Calls ``do`` once, when an exchange begins."""
    done = []

    def on_event(line):
        if line["event"] == "exchange" and (line["exchange"], line["outcome"]) == (exchange, "asked") and not done:
            done.append(exchange)
            do()

    return on_event


def test_a_full_disk_at_the_journal_sends_nothing_and_the_epoch_goes_on_later(federation):
    pid = federation.processes["bank"].pid
    size = (federation.folder / "bank" / "journal.db").stat().st_size
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    full = at("masked", lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, limits[1])))
    last, lines = federation.epoch(full)
    assert last["event"] == "failed"
    assert "masked: 2 members have answered, 3 are needed" in last["reason"]
    assert [line["member"] for line in lines if line.get("outcome") == "refused"] == ["bank"]
    assert federation.journal("bank") == []
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    last, _ = federation.epoch()
    assert (last["event"], last["epoch"], last["survivors"]) == ("done", 1, list(NAMES))


def test_a_member_that_stops_for_a_while_is_waited_for_and_one_that_stays_away_is_not(federation):
    pid = federation.processes["school"].pid
    last, lines = federation.epoch(at("shares", lambda: os.kill(pid, signal.SIGSTOP)), seconds=20.0)
    assert last["event"] == "failed"
    assert "shares: 2 members have answered, 3 are needed" in last["reason"]
    assert [line["member"] for line in lines if line.get("outcome") == "silent"] == ["school"]
    os.kill(pid, signal.SIGCONT)
    last, _ = federation.epoch()
    assert (last["event"], last["epoch"]) == ("done", 1)


def test_a_run_without_a_coordinator_says_what_to_start(federation):
    federation.command("stop", federation.coordinator.path)
    with pytest.raises(Exception, match="fedrouter federation coordinator"):
        federation.epoch()
