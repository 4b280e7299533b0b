"""Autopilot: learns from the log, swaps only what is better on old traffic, and leaves a way back."""

from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedrouter.bundle import load
from fedrouter.data.simulator import CAST
from fedrouter.gateway.config import Config, LearningConfig, Upstream, UpstreamParams
from fedrouter.gateway.routing.bundles import Bundles
from fedrouter.gateway.routing.served import PRIOR, ServedPrior
from fedrouter.gateway.upkeep import journal
from fedrouter.gateway.upkeep.autopilot import JOURNAL, Autopilot
from fedrouter.learning.exploration import Thompson
from fedrouter.store.store import Store
from learning.logs import record

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
    config, store, bundles = Config(models=models, store=url, learning=learning), Store.open(url), Bundles(NAMES)
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
    assert (saved.router.family, saved.router.pool.names) == ("linear", NAMES)
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
    autopilot = Autopilot(config, store, bundles)
    assert autopilot._due()
    with disk_takes(2000), pytest.raises(OSError, match="File too large"):
        autopilot.attempt()
    assert not list(Path(config.learning.folder).iterdir())
    assert store.current() is None
    assert not autopilot._due()  # not at once: learning takes long
    autopilot._not_before = 0.0
    assert autopilot._due()
    assert autopilot.attempt()["swapped"]


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


def test_what_a_killed_process_left_is_removed_later(day_zero):
    config, store, bundles, _ = day_zero
    folder = Path(config.learning.folder)
    for name in (".auto-old", ".auto-new", "auto-1"):
        (folder / name).mkdir(parents=True)
    os.utime(folder / ".auto-old", (1, 1))
    Autopilot(config, store, bundles)._clear()
    assert {path.name for path in folder.iterdir()} == {".auto-new", "auto-1"}
