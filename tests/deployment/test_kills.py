"""Any process is killed at each exchange of an epoch: it ends with a total, and nothing is released twice."""

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


VICTIMS = {
    "coordinator": kill_coordinator,
    "superlink": kill_superlink,
    "app": kill_app,
    "supernode": kill_supernode,
    "member": kill_member,
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_an_epoch_survives_a_kill_at_each_exchange(tmp_path, victim):
    with RealFederation(tmp_path) as federation:
        write_logs(tmp_path, parts=len(EXCHANGES))
        federation.form()
        for number, exchange in enumerate(EXCHANGES):
            if number:
                write_logs(tmp_path, parts=len(EXCHANGES), part=number)
            killed = []

            def on_event(line, exchange=exchange, killed=killed):
                asked = line["event"] == "exchange" and (line["exchange"], line["outcome"]) == (exchange, "asked")
                if asked and not killed:
                    killed.append(exchange)
                    VICTIMS[victim](federation)

            last, lines = federation.epoch(on_event)
            assert killed
            assert (last["event"], last.get("epoch")) == ("done", number + 1), (exchange, last, lines[-5:])
            assert last["survivors"] == list(NAMES)
        for name in NAMES:
            released = federation.journal(name)
            assert [epoch for epoch, _ in released] == [1, 2, 3, 4, 5]
            rows = len((tmp_path / f"{name}.csv").read_text().splitlines()) // 2
            assert 0 < sum(queries for _, queries in released) <= rows
