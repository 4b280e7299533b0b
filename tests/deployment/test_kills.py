"""At every exchange of an epoch over Flower a process is killed: it ends with a total, and the next one works.

Members and coordinators are killed without Flower, at more moments, in ``test_killed_members.py``.
"""

import time

import pytest

pytest.importorskip("flwr")

from deployment.real_federation import NAMES, RealFederation, kill_all, write_logs
from fedrouter.federation.member import EXCHANGES

pytestmark = pytest.mark.slow


def kill_coordinator(federation):
    federation.kill("coordinator")
    time.sleep(1)
    federation.start_coordinator()


def kill_superlink(federation):
    kill_all(federation.started_by("coordinator", "flower-superlink"))


def kill_app(federation):
    kill_all(federation.started_by("coordinator", "flwr-serverapp"))


def kill_supernode(federation):
    kill_all(federation.started_by("bank", "flower-supernode"))


def kill_member(federation):
    federation.kill("bank")
    time.sleep(1)
    federation.start_member("bank")


VICTIMS = (kill_superlink, kill_supernode, kill_app, kill_member, kill_coordinator)
TURNS = (0, 2)


def test_epochs_survive_a_kill_of_another_process_at_every_exchange(tmp_path):
    """Five kills in one epoch, and in the next one of other processes at the same exchanges."""
    with RealFederation(tmp_path) as federation:
        write_logs(tmp_path, parts=len(TURNS))
        federation.form()
        for number, turn in enumerate(TURNS):
            if number:
                write_logs(tmp_path, parts=len(TURNS), part=number)
            left = {exchange: VICTIMS[(at + turn) % len(VICTIMS)] for at, exchange in enumerate(EXCHANGES)}

            def on_event(line, left=left):
                if line["event"] == "exchange" and line["outcome"] == "asked" and line["exchange"] in left:
                    left.pop(line["exchange"])(federation)

            last, lines = federation.epoch(on_event, timeout=1800.0, wait=600)
            assert not left, lines[-5:]
            assert (last["event"], last.get("epoch")) == ("done", number + 1), (number, last, lines[-5:])
            assert last["survivors"] == list(NAMES)
        for name in NAMES:
            released = federation.journal(name)
            assert [epoch for epoch, _ in released] == [1, 2]
            rows = len((tmp_path / f"{name}.csv").read_text().splitlines()) // 2
            assert 0 < sum(queries for _, queries in released) <= rows
