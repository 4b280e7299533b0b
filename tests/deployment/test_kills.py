"""At every exchange of an epoch over Flower SuperNode, app and SuperLink are killed, and it ends with a total.

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
    assert kill_all(federation.started_by("coordinator", "flower-superlink"))


def kill_app(federation):
    assert kill_all(federation.started_by("coordinator", "flwr-serverapp"))


def kill_supernode(federation):
    assert kill_all(federation.started_by("bank", "flower-supernode"))


def kill_member(federation):
    federation.kill("bank")
    time.sleep(1)
    federation.start_member("bank")


KILLS = (
    (kill_supernode, kill_app, kill_superlink, kill_coordinator),
    (kill_supernode, kill_app, kill_superlink),
    (kill_supernode, kill_app, kill_superlink, kill_member),
    (kill_supernode, kill_app, kill_superlink),
    (kill_supernode, kill_app, kill_superlink),
)
"""Who is killed at each exchange: the first one when it begins, each other one at what is heard next.

A SuperLink takes a SuperNode that was killed for connected, and lets no other one in with its key, for a minute: enough
for the others.
"""


def test_supernode_app_and_superlink_are_killed_at_every_exchange_and_the_epoch_ends_with_a_total(tmp_path):
    with RealFederation(tmp_path) as federation:
        write_logs(tmp_path)
        federation.form()
        left = {exchange: list(victims) for exchange, victims in zip(EXCHANGES, KILLS, strict=True)}

        def on_event(line):
            heard = line["event"] == "exchange" and line["outcome"] in ("asked", "answered")
            if heard and left.get(line["exchange"]):
                left[line["exchange"]].pop(0)(federation)

        last, lines = federation.epoch(on_event, timeout=1800.0, wait=600)
        assert not any(left.values()), (left, lines[-5:])
        assert (last["event"], last.get("epoch")) == ("done", 1), (last, lines[-5:])
        assert last["survivors"] == list(NAMES)
        for name in NAMES:
            ((epoch, queries),) = federation.journal(name)
            rows = len((tmp_path / f"{name}.csv").read_text().splitlines()) // 2
            assert (epoch, 0 < queries <= rows) == (1, True)
