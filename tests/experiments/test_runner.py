"""The runner: what is finished is never measured again, whatever ended the run, and nothing is mixed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.small_world import small_world
from experiments.tables import write_table
from fedrouter.errors import BadInput
from fedrouter.experiments import runner
from fedrouter.experiments.paper_protocols import PROXROUTER, ROUTERBENCH
from fedrouter.experiments.registry import MEASUREMENTS, chosen
from fedrouter.experiments.runner import (
    Plan,
    Unit,
    complete,
    joined,
    open_folder,
    reproduce,
    run_unit,
    units_of,
)

NAMES = ["global", "heterogeneity"]
UNITS = 6
BOTH = ("mlp", "kmeans")
PROGRAM = f"""
import signal
import sys
from pathlib import Path
from fedrouter.experiments.runner import reproduce
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs of a shell ignore
    outcome = reproduce({NAMES!r}, sys.argv[1], None, seeds=2, rounds=2, out=Path(sys.argv[2]), jobs=2)
    assert not outcome.failed, outcome.failed
    print(len(outcome.found), len(outcome.measured))
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("data") / "table.parquet", queries=300, models=8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, table):
    """The documents of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    process = start(folder, table, folder / "out")
    told, errors = process.communicate(timeout=120)
    assert told.split() == ["0", str(UNITS)], errors
    return contents(folder / "out")


def start(tmp_path, table, out):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(program), str(table), str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def documents(out: Path) -> dict[Path, tuple[int, int]]:
    """Finished documents, each with what would change if it were written again."""
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(out.glob("measured/*/*.json"))}


def contents(out: Path) -> dict[str, object]:
    return {str(path.relative_to(out)): json.loads(path.read_text())["document"] for path in documents(out)}


def wait_for_some(process, out, most=UNITS - 1):
    """Until at least one document is there, and before all are."""
    until = time.monotonic() + 120
    while not documents(out):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(documents(out)) <= most


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_goes_on_and_redoes_nothing(tmp_path, table, whole, how):
    out = tmp_path / "out"
    process = start(tmp_path, table, out)
    wait_for_some(process, out)
    os.kill(process.pid, how)
    process.communicate(timeout=30)
    assert process.returncode != 0
    time.sleep(1)  # for the workers to notice
    finished = documents(out)
    time.sleep(4)
    assert documents(out) == finished, "workers went on after their parent had ended"

    process = start(tmp_path, table, out)
    told, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert told.split() == [str(len(finished)), str(UNITS - len(finished))]
    everything = documents(out)
    assert {path: everything[path] for path in finished} == finished
    assert contents(out) == whole


@pytest.mark.slow
def test_more_seeds_extend_a_run_and_a_third_time_there_is_nothing_to_do(tmp_path, table):
    told = []
    only = {"families": ("kmeans",)}
    units = [Unit("encoders", "kmeans", seed) for seed in (0, 1)]
    first = reproduce(["encoders"], table, None, 1, 2, tmp_path / "out", 1, lambda *news: told.append(news), **only)
    before = documents(tmp_path / "out")
    second = reproduce(["encoders"], table, None, 2, 2, tmp_path / "out", 1, **only)
    third = reproduce(["encoders"], table, None, 2, 2, tmp_path / "out", 1, **only)
    assert (first.measured, first.found) == (units[:1], [])
    assert (second.measured, second.found) == (units[1:], units[:1])
    assert (third.measured, len(third.found)) == ([], 2)
    assert before.items() <= documents(tmp_path / "out").items()
    runs = complete(chosen(["encoders"]), 2, third.plan, ("kmeans",))
    assert [run["seed"] for run in runs["encoders"]] == [0, 1]
    assert [news[2] for news in told if news[2]] == ["encoders kmeans, seed 0"]
    assert told[-1][:2] == (1, 1)


@pytest.mark.slow
def test_one_failure_is_named_and_leaves_the_others_alone(tmp_path):
    table = write_table(tmp_path / "broken.parquet", broken=True, queries=300, models=8)
    names = ["encoders", "heterogeneity"]
    outcome = reproduce(names, table, None, 1, 2, tmp_path / "out", 2, families=("kmeans",))
    (unit,) = outcome.failed
    assert str(unit) == "encoders kmeans, seed 0"
    assert "row 5" in outcome.failed[unit]
    assert list(complete(chosen(names), 1, outcome.plan, ("kmeans",))) == ["heterogeneity"]
    assert outcome.measured == [Unit("heterogeneity", "", 0)]


def test_an_unexpected_error_is_told_without_its_text(tmp_path, table):
    problem = run_unit(run_settings(tmp_path, table), Unit("no such measurement", "", 0))
    assert problem.startswith("KeyError at runner.py, line ")
    assert "no such" not in problem
    assert not documents(tmp_path)


def run_settings(out, table="nowhere.csv", **changes):
    plan = Plan(str(table), "all-mpnet-base-v2", "sha256:none", 1, False, ROUTERBENCH, {}, "cpu", out)
    return replace(plan, **changes)


def write_document(plan, unit, **document):
    made = {"digest": plan.digest_of(unit), "seconds": 1.0, "document": {"seed": unit.seed, **document}}
    unit.path(plan.out).parent.mkdir(parents=True, exist_ok=True)
    unit.path(plan.out).write_text(json.dumps(made))


def test_families_that_only_count_come_first_then_what_takes_longest():
    units = units_of(chosen(["all"]), 3, ("mlp", "kmeans"))
    order = [(unit.family == "mlp", -MEASUREMENTS[unit.measurement].effort) for unit in units]
    assert order == sorted(order)
    assert units.count(Unit("comparison", "mlp", 2)) == 1
    assert {unit.family for unit in units if unit.measurement == "heterogeneity"} == {""}


def test_seeds_are_fixed_beforehand_twenty_and_ten_for_networks():
    counts = Counter((unit.measurement, unit.family) for unit in units_of(chosen(["all"]), None, ("mlp", "kmeans")))
    assert counts["comparison", "kmeans"] == counts["theorems", ""] == 20
    assert counts["comparison", "mlp"] == 10


def test_a_document_tells_the_device_only_if_it_was_used(tmp_path):
    here, there = run_settings(tmp_path), run_settings(tmp_path, device="cuda")
    theorems, comparison = Unit("theorems", "", 0), Unit("comparison", "kmeans", 0)  # texts are encoded there, too
    assert here.digest_of(theorems) == there.digest_of(theorems)
    assert here.digest_of(comparison) != there.digest_of(comparison)


def test_an_experiment_is_complete_only_with_every_seed_and_family(tmp_path):
    settings = run_settings(tmp_path)
    experiments = chosen(["global", "own", "encoders"])
    for seed in (1, 0):
        for name in ("mlp", "kmeans"):
            write_document(settings, Unit("comparison", name, seed), curves=[{"family": name}, {"way": "oracle"}])
    write_document(settings, Unit("encoders", "mlp", 1))
    curves = [{"family": "kmeans"}, {"way": "oracle"}, {"family": "mlp"}]
    whole = [{"seed": seed, "curves": curves} for seed in (0, 1)]
    assert complete(experiments, 2, settings, BOTH) == {"global": whole, "own": whole}
    assert complete(experiments, 3, settings, BOTH) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"data_digest": "sha256:other"},
        {"changes": {"kmeans": {"k_global": 40}}},
        {"protocol": PROXROUTER},
    ],
)
def test_a_document_that_something_else_made_is_not_reused(tmp_path, other, monkeypatch):
    settings, unit = run_settings(tmp_path), Unit("comparison", "kmeans", 0)
    write_document(settings, unit)
    assert settings.document(unit) == {"seed": 0}
    assert replace(settings, **other).document(unit) is None
    assert settings.document(replace(unit, seed=1)) is None
    monkeypatch.setattr(runner, "code_digest", lambda: "other code")
    assert settings.document(unit) is None


def test_what_is_measured_so_far_can_be_reported(tmp_path):
    settings = run_settings(tmp_path)
    for name, seed in (("kmeans", 0), ("kmeans", 1), ("kmeans", 3), ("mlp", 0)):
        write_document(settings, Unit("comparison", name, seed), families=[name])
    (runs,) = complete(chosen(["global"]), 5, settings, BOTH, so_far=True).values()
    assert runs == [{"seed": 0, "families": ["kmeans", "mlp"]}, {"seed": 1, "families": ["kmeans"]}]
    assert complete(chosen(["encoders"]), 5, settings, BOTH, so_far=True) == {}


def test_documents_that_contradict_each_other_are_not_joined():
    assert joined([{"seed": 0, "a": {"x": 1}}, {"seed": 0, "a": {"y": [2]}}]) == {"seed": 0, "a": {"x": 1, "y": [2]}}
    with pytest.raises(ValueError, match="contradict"):
        joined([{"seed": 0}, {"seed": 1}])


def test_results_of_another_run_are_never_mixed_in(tmp_path):
    world = small_world()
    open_folder(tmp_path, world, "cpu")
    open_folder(tmp_path, replace(world, seed=3), "cpu")
    recorded = json.loads((tmp_path / "run.json").read_text())
    assert recorded["data_digest"] == world.dataset.digest
    assert recorded["versions"]["fedrouter"]
    assert recorded["protocol"]["withheld"] == 3
    other_data = replace(world.dataset, name="other.csv", digest="sha256:other")
    other_encoder = replace(world.dataset, encoder=replace(world.dataset.encoder, name="other"))
    for other, different in (
        (replace(world, rounds=7), r"rounds \(2 there, 7 now\)"),
        (replace(world, dataset=other_data), r"data \('drawn' there, 'other.csv' now\); data_digest"),
        (replace(world, dataset=other_encoder), r"encoder \('drawn' there, 'other' now\)"),
        (replace(world, encode=True), r"encode \(False there, True now\)"),
        (replace(world, families=("kmeans",)), r"differs in settings\.mlp"),
        (
            replace(world, changes={"kmeans": {"k_global": 40}}),
            r"settings\.kmeans\.k_global \(0 there, 40 now\)",
        ),
        (replace(world, protocol=PROXROUTER), r"protocol\.name \('routerbench' there, 'proxrouter' now\)"),
    ):
        with pytest.raises(BadInput, match=different):
            open_folder(tmp_path, other, "cpu")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="not a folder of `fedrouter reproduce`"):
        open_folder(tmp_path, small_world(), "cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["seeds", "rounds", "jobs"])
def test_numbers_below_one_are_refused_before_anything_is_made(tmp_path, table, name):
    numbers = {"seeds": 1, "rounds": 1, "jobs": 1} | {name: 0}
    with pytest.raises(BadInput, match=rf"--{name}: expected at least 1, got 0"):
        reproduce(["global"], table, None, out=tmp_path / "out", **numbers)
    assert not (tmp_path / "out").exists()
