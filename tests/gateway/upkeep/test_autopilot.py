"""Autopilot: learns from the log, swaps only what is better on old traffic, and leaves a way back."""

import json
import os
import resource
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedrouter import bundle
from fedrouter.bundle import load
from fedrouter.data.simulator import CAST
from fedrouter.gateway.config import Config, LearningConfig, Upstream, UpstreamParams
from fedrouter.gateway.routing.bundles import Bundles
from fedrouter.gateway.routing.served import PRIOR, ServedPrior
from fedrouter.gateway.upkeep import autopilot, journal
from fedrouter.gateway.upkeep.autopilot import JOURNAL, LOCK, Autopilot
from fedrouter.learning.exploration import Thompson
from fedrouter.learning.trial import run_trial
from fedrouter.store.store import Store
from learning.logs import learned, record

COIN = np.random.default_rng(1)
NAMES = ("atlas-max", "juniper-open", "cobalt-code")


def equally_good(accuracy):
    """Scores of models that differ in nothing but their prices: a good router sends everything to the cheapest."""
    return 0.6 + 0.2 * COIN.random()


@pytest.fixture
def day_zero(tmp_path, world):
    """A gateway's parts without a bundle: its config, its store, and a function that adds scored traffic."""
    prices = {each.model.name: each.model for each in CAST}
    models = tuple(
        Upstream(
            name=name,
            params=UpstreamParams(api_base="http://127.0.0.1:9/v1"),
            input_price=prices[name].input_price,
            output_price=prices[name].output_price,
        )
        for name in NAMES
    )
    url, learning = f"sqlite:///{tmp_path}/log.db", LearningConfig(every=100, folder=str(tmp_path / "bundles"))
    config, store, bundles = Config(models=models, store=url, learning=learning), Store.open(url), Bundles(models)
    bundles.prior = ServedPrior(models, world.encoder)
    bundles.swap(bundles.prior)
    policy, draw = Thompson(config.routing.explored_share, 0.1, seed=0), np.random.default_rng(0)
    grid = world.evaluations.grid()
    columns = [grid.pool.index(name) for name in NAMES]
    times = iter(range(1, 10_000))

    def traffic(requests, score=lambda accuracy: accuracy):
        tradeoff, rows = config.routing.tradeoff_for(bundles.current.points), []
        for query in draw.integers(0, len(grid), requests):
            embedding = world.evaluations.embeddings[query]
            found = bundles.current.cached_estimates(b"%d" % query, embedding)
            choice = policy.choose(found.accuracy, found.error, found.cost, np.ones(3, bool), tradeoff)
            column, at = columns[choice.index], float(next(times))
            rows.append(
                record(
                    at=at,
                    chosen=NAMES[choice.index],
                    served=NAMES[choice.index],
                    propensity=choice.propensity,
                    explored=choice.explored,
                    tradeoff=tradeoff,
                    embedding=embedding.astype("<f4").tobytes(),
                    encoder=world.encoder.name,
                    cost=float(grid.cost[query, column]),
                    score=float(score(grid.accuracy[query, column])),
                    scored_by="key",
                    scored_at=at,
                )
            )
        store.append(rows)

    yield config, store, bundles, traffic
    store.close()


def test_the_first_router_is_learned_and_swapped_in_and_the_guesses_are_one_rollback_away(day_zero):
    config, store, bundles, traffic = day_zero
    traffic(600, equally_good)
    outcome = Autopilot(config, store, bundles).attempt()
    assert outcome["swapped"], outcome["why"]
    utility = outcome["trial"]["utility"]
    assert utility["value"] - 1.96 * utility["error"] > 0
    saved = load(outcome["bundle"])
    assert (saved.router.family, saved.router.pool.names) == ("bayes", tuple(sorted(NAMES)))
    assert saved.clients["gateway"]["rows"] == 600
    assert store.current().digest == saved.manifest["digest"]
    assert store.roll_back().path == PRIOR


def test_the_next_version_learns_only_what_is_new_and_names_its_parent(day_zero):
    config, store, bundles, traffic = day_zero
    traffic(600, equally_good)
    first = Autopilot(config, store, bundles).attempt()
    bundles.swap(bundles.prepare(first["bundle"]))
    traffic(300, equally_good)
    second = Autopilot(config, store, bundles).attempt()
    assert second.get("trial", {"requests": 0})["requests"] <= 300
    assert second["until"] == 900
    lines = [json.loads(line) for line in (Path(config.learning.folder) / JOURNAL).read_text().splitlines()]
    assert [line["why"] for line in lines] == [first["why"], second["why"]]
    if second["swapped"]:
        assert load(second["bundle"]).manifest["parent"] == load(first["bundle"]).manifest["digest"]


def test_what_cannot_be_better_is_not_put_into_service(day_zero):
    config, store, bundles, traffic = day_zero
    traffic(400, equally_good)
    config = config.replace(routing=config.routing.replace(tradeoff=0.0))  # cost does not count, and accuracy is equal
    outcome = Autopilot(config, store, bundles).attempt()
    assert not outcome["swapped"]
    assert store.current() is None


def test_a_router_without_evidence_is_replaced_by_one_of_the_whole_log(day_zero, world, tmp_path, monkeypatch):
    config, store, bundles, traffic = day_zero
    before = bundle.Provenance("x", "", 0, 0, [], {}, version=3)
    bundle.save(tmp_path / "all", learned(world.evaluations, "kmeans"), world.encoder, before)
    bundles.swap(bundles.prepare(tmp_path / "all"))
    assert len(bundles.current.router.pool) > len(NAMES)
    offered = []

    def tried(*given):
        offered.extend(given[1].names)
        return run_trial(*given)

    monkeypatch.setattr(autopilot, "run_trial", tried)
    traffic(400)
    found = Autopilot(config, store, bundles).attempt(swap=False)
    assert sorted(offered) == sorted(NAMES)  # and none of the router's other models
    saved = load(found["bundle"])
    assert (saved.router.family, saved.version) == ("bayes", 4)
    assert saved.manifest["parent"] == bundles.current.digest
    assert saved.clients["gateway"]["rows"] == saved.router.rows_by_model().sum() == 400


def test_too_little_traffic_is_said_and_nothing_happens(day_zero):
    config, store, bundles, traffic = day_zero
    traffic(20)
    outcome = Autopilot(config, store, bundles).attempt()
    assert (outcome["swapped"], "at least 50" in outcome["why"]) == (False, True)


@contextmanager
def disk_takes(size):
    """Files of this process cannot grow beyond this size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
def test_a_full_disk_leaves_no_half_bundle_and_the_same_rows_are_tried_again(day_zero):
    config, store, bundles, traffic = day_zero
    traffic(600, equally_good)
    pilot = Autopilot(config, store, bundles)
    assert pilot._due()
    with disk_takes(2000), pytest.raises(OSError, match="File too large"):
        pilot.attempt()
    assert not list(Path(config.learning.folder).glob("*auto-*"))
    assert store.current() is None
    assert not pilot._due()  # not at once: learning takes long
    pilot._not_before = 0.0
    assert pilot._due()
    assert pilot.attempt()["swapped"]


def test_a_line_that_was_cut_off_does_not_count_and_spoils_no_other(tmp_path):
    path = tmp_path / JOURNAL
    journal.append(path, {"at": 1.0, "until": 5.0})
    path.write_bytes(path.read_bytes() + b'{"at": 2.0, "unt')  # killed while it wrote
    assert journal.entries(path) == [{"at": 1.0, "until": 5.0}]
    journal.append(path, {"at": 3.0})
    whole = path.read_bytes()
    with disk_takes(len(whole) + 5), pytest.raises(OSError, match="no space"):
        journal.append(path, {"at": 4.0})
    assert path.read_bytes() == whole
    assert [entry["at"] for entry in journal.entries(path)] == [1.0, 3.0]


def test_what_a_killed_process_left_half_written_is_removed(day_zero):
    config, store, bundles, _ = day_zero
    folder = Path(config.learning.folder)
    for name in (".auto-1-x", "auto-1"):
        (folder / name).mkdir(parents=True)
    Autopilot(config, store, bundles)._take_over()
    assert visible(folder) == {"auto-1"}


def visible(folder):
    return {path.name for path in folder.iterdir()} - {LOCK}


@dataclass
class Better:
    """A trial that the candidate has won, to come to what follows it."""

    better, why = True, "it is better"

    def to_json(self):
        return {"requests": 100}


STEPS = {
    "nothing is written": (autopilot, "replace_file", "before", False),
    "a candidate is announced": (autopilot, "replace_file", "after", False),
    "half a candidate is written": (bundle.Path, "write_text", "before", False),
    "a candidate is written": (autopilot, "save", "after", False),
    "the guesses are named as current": (Store, "set_current", "after", False),
    "it is in service": (Store, "set_current", "after the second", True),
    "half of a line is written": (journal.json, "dumps", "half", True),
    "it is recorded": (autopilot, "append", "after", True),
}
"""Where a process is killed: a function, before or after which; and whether the candidate is then in service."""


def kill_at(monkeypatch, where, name, when, journal_path):
    """End this process, as by SIGKILL, before or after a call of a function."""
    real, calls = getattr(where, name), []

    def killed(*args, **more):
        calls.append(1)
        if when == "half" and args[0].get("swapped"):
            journal_path.write_text(real(*args, **more)[:40])
            os._exit(9)
        if when == "before":
            os._exit(9)
        found = real(*args, **more)
        if when == "after" or (when == "after the second" and len(calls) == 2):
            os._exit(9)
        return found

    monkeypatch.setattr(where, name, killed)


QUICK = ("a candidate is written", "it is in service")


@pytest.mark.parametrize(
    ("step", "rolled_back"),
    [
        *(pytest.param(step, False, marks=() if step in QUICK else pytest.mark.slow) for step in STEPS),
        *(pytest.param(step, True, marks=pytest.mark.slow) for step in STEPS if STEPS[step][3]),
    ],
)
def test_a_kill_in_the_middle_of_a_swap_leaves_one_bundle_in_service_and_says_why(
    day_zero, monkeypatch, step, rolled_back
):
    config, store, bundles, traffic = day_zero
    traffic(100, equally_good)
    where, name, when, serves = STEPS[step]
    folder = Path(config.learning.folder)
    monkeypatch.setattr(autopilot, "run_trial", lambda *_: Better())
    child = os.fork()
    if not child:
        try:
            kill_at(monkeypatch, where, name, when, folder / JOURNAL)
            with Store.open(config.store) as own:
                Autopilot(config, own, bundles).attempt()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, "the step was not reached"
    if serves and rolled_back:
        assert store.roll_back().path == PRIOR

    pilot = Autopilot(config, store, bundles)
    pilot._take_over()
    found, current = journal.entries(folder / JOURNAL), store.current()
    names = visible(folder) - {JOURNAL}
    if serves:
        (entry,) = found
        assert (entry["swapped"], entry["why"], entry["trial"]) == (True, "it is better", {"requests": 100})
        assert names == {Path(entry["bundle"]).name}
        assert load(entry["bundle"]).manifest["digest"] == entry["digest"]
        assert (entry["rows"], entry["until"]) == (100, 100.0)
        assert not pilot._due()  # what it has learned from
        expected = ("", PRIOR) if rolled_back else (entry["digest"], str(Path(entry["bundle"]).resolve()))
        assert (current.digest, current.path) == expected
        bundles.swap(bundles.at(current.path, current.digest))
        traffic(100, equally_good)
    else:
        assert (found, names, current and current.path) == ([], set(), current and PRIOR)
    assert pilot._due()
    again = pilot.attempt()
    assert again["swapped"]
    assert store.current().digest == again["digest"]
    assert len(journal.entries(folder / JOURNAL)) == len(found) + 1
    assert visible(folder) == names | {JOURNAL, Path(again["bundle"]).name}
