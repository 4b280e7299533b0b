"""Judging a router on a gateway's log, as a user does it: a store in, a table out."""

import json
import subprocess
import sys

import numpy as np
import pytest

from cli.command import answer, run
from fedrouter.bundle import Provenance, load, save
from fedrouter.data.partition import partition
from fedrouter.learning.from_log import learn_from_log
from fedrouter.store.store import Store
from learning.logs import learned, record

TRADEOFF = 50.0


def logged(evaluations, router, encoder, requests, draw, start):
    """Requests that a policy served which is uniform over models with chance 0.4 and greedy otherwise."""
    grid, pool = evaluations.grid(), evaluations.pool
    queries = draw.integers(0, evaluations.queries, requests)
    greedy = router.estimate(evaluations.embeddings[queries]).choose(TRADEOFF)
    chosen = np.where(draw.random(requests) < 0.4, draw.integers(0, len(pool), requests), greedy)
    chance = 0.4 / len(pool) + 0.6 * (chosen == greedy)
    return [
        record(
            at=start + row,
            chosen=pool.names[chosen[row]],
            served=pool.names[chosen[row]],
            explored=bool(chosen[row] != greedy[row]),
            propensity=float(chance[row]),
            tradeoff=TRADEOFF,
            embedding=evaluations.embeddings[query].astype("<f4").tobytes(),
            encoder=encoder.name,
            cost=float(grid.cost[query, chosen[row]]),
            score=None,
            scored_by=None,
            scored_at=None,
        )
        for row, query in enumerate(queries)
    ], grid.accuracy[queries, chosen]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, world):
    """A folder with bundles learned from one client's small log, and a store with traffic of the rest."""
    folder = tmp_path_factory.mktemp("learn")
    some = world.evaluations
    client = partition(some, clients=20, seed=3)[0].train
    for family in ("kmeans", "bayes"):
        router = learned(client, family)
        entries = [{"name": "client-01", "rows": len(client)}]
        save(folder / family, router, world.encoder, Provenance("world", "sha256:0", 0, 1, entries, {}))
    draw = np.random.default_rng(0)
    records, scores = logged(some, load(folder / "kmeans").router, world.encoder, 1500, draw, start=1000.0)
    with Store.open(f"sqlite:///{folder}/log.db") as store:
        store.append(records)
        for one, score in zip(records[:1200], scores, strict=False):
            store.score(one.id, float(score), "key-1", one.time + 0.5)
    return folder


def store_of(folder):
    return f"sqlite:///{folder}/log.db"


@pytest.mark.parametrize("source", ["store", "export"])
def test_evaluate_judges_a_router_on_the_log(workspace, source, world, tmp_path):
    log = store_of(workspace)
    if source == "export":
        log = tmp_path / "log.parquet"
        with Store.open(store_of(workspace)) as store:
            store.export(log)
    document = answer("evaluate", workspace / "bayes", "--log", log, "--tradeoff", 5, "--tradeoff", 500)
    router, evaluations = load(workspace / "bayes").router, world.evaluations
    grid, rows = evaluations.grid(), np.arange(evaluations.queries)
    for found, tradeoff in zip(document["estimates"], (5, 500), strict=True):
        choice = router.estimate(evaluations.embeddings).choose(tradeoff)
        for what, truth in (("accuracy", grid.accuracy), ("cost", grid.cost)):
            mean = found["doubly_robust"][what]
            assert abs(mean["value"] - truth[rows, choice].mean()) < 4 * mean["error"]
        assert found["requests"] == document["requests"] == 1200
        assert found["tradeoff"] == tradeoff
    assert document["left_out"] == ({"no score": 300} if source == "store" else {})


def test_requests_that_a_router_was_learnt_from_do_not_judge_it(workspace, world, tmp_path):
    with Store.open(store_of(workspace)) as store:
        found = learn_from_log(store, "gateway", world.encoder, load(workspace / "kmeans"))
    save(tmp_path / "new", found.router, world.encoder, found.provenance)
    done = run("evaluate", tmp_path / "new", "--log", store_of(workspace), "--json")
    assert done.returncode == 2
    assert "1,200 learned from already" in json.loads(done.stdout)["error"]


def test_evaluate_shows_a_table_to_a_person(workspace):
    done = run("evaluate", workspace / "kmeans", "--log", store_of(workspace))
    assert done.returncode == 0
    for words in ("what was logged", "doubly robust", "inverse propensity", "self-normalized", "rows of evidence"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give --data"),
        (("--data", "x.parquet", "--log", "sqlite:///x.db"), "give --data"),
        (("--data", "x.parquet", "--tradeoff", 1), "--tradeoff goes with --log"),
        (("--log", "sqlite:///absent.db"), "absent.db"),
        (("--log", "absent.parquet"), "no such file"),
    ],
)
def test_evaluate_refuses_what_it_cannot_do(workspace, arguments, problem):
    done = run("evaluate", workspace / "kmeans", *arguments, cwd=workspace)
    assert done.returncode == 2
    assert problem in done.stderr


def test_importing_the_learning_package_imports_nothing_heavy():
    heavy = ("torch", "sklearn", "scipy", "pyarrow", "pandas")
    modules = ("exploration", "offpolicy", "from_log", "judges", "panel", "traffic")
    program = (
        f"import sys; {'; '.join(f'import fedrouter.learning.{name}' for name in modules)}; "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
