"""Three members learn a router together over stock Flower: TLS, node keys, processes, commands."""

import json

import pytest

pytest.importorskip("flwr")

from deployment.real_federation import NAMES, RealFederation, write_logs
from fedrouter.bundle import load
from fedrouter.federation.member import EXCHANGES

pytestmark = pytest.mark.slow


def test_three_members_learn_a_router_and_each_makes_it_its_own(tmp_path):
    write_logs(tmp_path)
    with RealFederation(tmp_path) as federation:
        federation.form()
        done = federation.command("run", federation.coordinator.path, "--yes", "--wait", "120")
        assert done["survivors"] == list(NAMES)
        assert {exchange: sorted(who) for exchange, who in done["answered"].items()} == {
            exchange: list(NAMES) for exchange in (*EXCHANGES, "total")
        }
        assert not done["left_out"]
        assert 3_000 < done["rows"] <= 4_000
        federation.until(
            lambda: all((tmp_path / name / "verdict.json").exists() for name in NAMES), "each made a router", 600
        )
        sums = set()
        for name in NAMES:
            bundle = load(tmp_path / name / "bundle")
            assert bundle.router.family == "bayes"
            verified = federation.command("verify", tmp_path / name)
            assert verified["difference"] <= 1e-6
            sums.add(verified["sum"])
            audited = federation.command("audit", tmp_path / name)
            assert [each["exchange"] for each in audited["sent"]] == list(EXCHANGES)
            (release,) = audited["releases"]
            assert release["spent"]["epsilon"] == 8
            assert release["queries"] > 1_300
            status = federation.command("status", tmp_path / name)
            assert status["running"]
            assert status["totals"] == [1]
            assert status["verdict"]["epoch"] == 1
            assert not status["refusals"]
        assert len(sums) == 1
        told = federation.command("status", federation.coordinator.path)
        assert [each["connected"] for each in told["members"]] == [True] * 3
        assert [each["state"] for each in told["epochs"]] == ["done"]
        trusted = federation.command("approve", tmp_path / "bank", "--all")["members"]
        assert all(each["trusted"] for each in trusted.values())
        assert {each["name"]: each["fingerprint"] for each in told["members"] if each["name"] != "bank"} == {
            name: each["fingerprint"] for name, each in trusted.items()
        }
        # Nothing is left to say: every query has left once in its life.
        last, _ = federation.epoch()
        assert last["event"] == "done"
        assert last["rows"] == 0
        assert federation.journal("bank")[1][1] == 0
        assert not any("prompt" in line for line in (tmp_path / "coordinator" / "superlink.log").read_text().split())
        json.loads((tmp_path / "bank" / "verdict.json").read_text())
        assert federation.command("stop", tmp_path / "bank")["stopped"]
