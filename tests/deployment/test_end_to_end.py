"""Three members learn a router together over stock Flower: TLS, node keys, processes, commands."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from deployment.real_federation import NAMES, RealFederation, kill_all, write_logs
from fedrouter.bundle import load
from fedrouter.deployment.own_log import read_own
from fedrouter.engines.local import EXACT, LocalFederation
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.member import EXCHANGES
from fedrouter.federation.policy import Policy
from fedrouter.growth import pool_of

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
        assert "no more than 2 of the 3 members" in done["claims"][0]
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


def test_families_of_the_paper_are_learned_over_the_wire_and_kept_by_every_member(tmp_path):
    """K-Means by the command, with the paper's settings; the MLP's app is killed after its first round."""
    write_logs(tmp_path)
    with RealFederation(tmp_path) as federation:
        federation.form()
        for name in NAMES:
            file = tmp_path / name / "policy.yaml"
            replace(Policy.read(file), families=("bayes", "kmeans", "mlp")).write(file)
        words = ("run", federation.coordinator.path, "--wait", "120", "--router", "kmeans", "--paper")
        done = federation.command(*words, "--set", "kmeans.k_local=4")
        assert done["survivors"] == list(NAMES)
        assert "No noise" in done["claims"][0]
        killed = []

        def on_event(line):
            if line["event"] == "exchange" and (line["exchange"], line["outcome"]) == ("ask 3", "asked") and not killed:
                killed.append(line)
                kill_all(federation.started_by("coordinator", "flwr-serverapp"))

        last, lines = federation.epoch(on_event, family="mlp", epsilon=0.0, settings={"rounds": 3, "hidden": [16]})
        assert killed
        assert (last["event"], last.get("epoch")) == ("done", 2), lines[-5:]
        logs = {name: read_own(str(tmp_path / f"{name}.csv"), "static")[0] for name in NAMES}
        for family, settings in (("kmeans", FAMILIES["kmeans"].paper.changed(k_local=4)), ("mlp", None)):
            settings = settings or FAMILIES["mlp"].settings(rounds=3, hidden=(16,))
            expected = FAMILIES[family].learn(LocalFederation(logs, EXACT), pool_of(logs.values()), settings).arrays()
            for name in NAMES:
                link = tmp_path / name / f"bundle-{family}"
                federation.until(link.exists, f"{name} has a router of {family}", 300)
                found = load(link).router.arrays()
                assert all(np.array_equal(array, found[key]) for key, array in expected.items()), (family, name)
        assert federation.command("verify", tmp_path / "bank")["epochs"] == [1, 2]
        audited = federation.command("audit", tmp_path / "bank")
        assert all("in the clear" in each["words"] for each in audited["releases"])
