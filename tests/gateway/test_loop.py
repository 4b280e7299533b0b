"""The loop, end to end, as a person would run it; and that it says so when nothing was gained."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from conftest import PROJECT
from fedrouter.data.read import read
from fedrouter.store import Record
from fedrouter.store.store import Store

sys.path.insert(0, str(PROJECT / "scripts"))
from loop_parts.measured import Pass, not_better
from loop_parts.organizations import make_world

WIN = Record(
    id="a", time=0.0, key="k", bundle="b", version=1, family="f", tradeoff=1.0, chosen="m", reason="best",
    served="m", cost=0.002, score=0.0,
)  # fmt: skip


def one_pass(scores, costs) -> Pass:
    records = [replace(WIN, score=score, cost=cost) for score, cost in zip(scores, costs, strict=True)]
    return Pass("held-out", 1, "f", {"client-1": records})


def run(out, *arguments) -> tuple[int, str, dict]:
    command = [sys.executable, str(PROJECT / "scripts" / "loop.py"), "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert (out / "loop.json").exists(), done.stderr
    return done.returncode, done.stdout, json.loads((out / "loop.json").read_text())


def test_it_is_better_only_if_accuracy_rises_and_cost_falls_beyond_chance():
    low, high = [0.0, 0.2] * 50, [0.5, 0.6] * 50
    dear, cheap = [0.002, 0.003] * 50, [0.001, 0.001] * 50
    assert not_better(one_pass(low, dear), one_pass(high, cheap)) is None
    assert "accuracy changed by +0.000" in not_better(one_pass(low, dear), one_pass(low, cheap))
    assert "dollars" in not_better(one_pass(low, cheap), one_pass(high, dear))
    by_chance = [0.0] * 99 + [1.0]
    assert "accuracy" in not_better(one_pass([0.0] * 100, dear), one_pass(by_chance, cheap))


def test_no_query_is_in_two_places():
    world = make_world(rounds=3, requests=200, held_out=200, seed=0)
    asked = [
        text for one in world.organizations for texts in (one.trial.text, *one.traffic, one.held_out) for text in texts
    ]
    assert len(asked) == len(set(asked)) == 3 * (25 + 3 * 200 + 200)


@pytest.mark.slow
def test_the_loop_raises_accuracy_and_lowers_cost(tmp_path):
    status, said, found = run(tmp_path / "loop")
    assert status == 0, said
    assert found["improved"]
    first, last = found["passes"][0], found["passes"][-1]
    assert (first["family"], last["family"], last["version"]) == ("query_blind", "kmeans", 4)
    assert last["accuracy"] > first["accuracy"] + 0.03
    assert last["cost"] < 0.8 * first["cost"]
    assert "none failed" in said
    assert (tmp_path / "loop" / "loop.html").read_text().count("<svg") == 1
    for name in ("client-1", "client-2", "client-3"):
        exported = read(tmp_path / "loop" / name / "exports").evaluations
        with Store.open(f"sqlite:///{tmp_path / 'loop' / name / 'log.db'}") as store:
            assert sum(row.errors for row in store.usage("day")) == 0
            assert store.current().path.endswith("v4")
        assert len(exported) == 3 * 200


@pytest.mark.slow
def test_the_loop_fails_where_the_router_cannot_tell_queries_apart(tmp_path):
    arguments = ("--rounds", "1", "--requests", "60", "--held-out", "30", "--router", "query_blind")
    status, said, found = run(tmp_path / "loop", *arguments)
    assert status == 1
    assert not found["improved"]
    assert "No significant improvement" in said
