"""Learning from a gateway's store and judging on one, as a user does it: a store in, a new version or a verdict out."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from cli.command import answer, run
from fedrouter.bundle import Provenance, load, save
from fedrouter.data.partition import partition
from fedrouter.store.export import export
from fedrouter.store.store import Store
from learning.logs import learned, record, records_of

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


def arrays(path):
    return {name: array.tobytes() for name, array in load(path).router.arrays().items()}


def test_learning_adds_the_scored_requests_in_a_new_version(workspace, world, tmp_path):
    document = answer("learn", store_of(workspace), "--with", workspace / "bayes", "--out", tmp_path / "new")
    parent, child = load(workspace / "bayes"), load(tmp_path / "new")
    assert document["parent"] == child.manifest["parent"] == parent.manifest["digest"]
    assert (document["version"], child.version) == (2, 2)
    assert document["rows"]["gateway"] == 1200
    assert child.clients["gateway"]["rows"] == document["change"]["rows"] == 1200
    truth = world.evaluations.grid()
    miss = [
        np.nanmean((bundle.router.estimate(world.evaluations.embeddings).accuracy - truth.accuracy) ** 2)
        for bundle in (parent, child)
    ]
    assert miss[1] < miss[0]


def test_that_cells_are_dropped_is_said_with_commands_that_keep_them(workspace, tmp_path):
    saved = load(workspace / "bayes")
    assert saved.router.evidence.features.cells is not None
    (said,) = answer("learn", store_of(workspace), "--with", saved.path, "--out", tmp_path / "new")["warnings"]
    assert load(tmp_path / "new").router.evidence.features.cells is None
    commands = [shlex.split(command)[1:] for command in said.partition("the rows: ")[2].split(" && ")]
    for command in commands:
        done = run(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    kept = load(tmp_path / "new-cells")
    assert kept.router.evidence.features.digest == saved.router.evidence.features.digest
    assert kept.clients["gateway"]["rows"] == 1200


def test_a_store_is_learned_from_as_it_is_whenever_its_scores_came(workspace, world, tmp_path):
    url, records = f"sqlite:///{tmp_path}/late.db", records_of(world.evaluations.take(np.arange(300)))
    unscored = [replace(each, score=None, scored_by=None, scored_at=None) for each in records]
    unscored = [replace(each, encoder=world.encoder.name) for each in unscored]
    with Store.open(url) as store:
        store.append(unscored)
        for each in records[::2]:
            store.score(each.id, 0.5, "key-1", 6000.0)
        answer("learn", url, "--with", workspace / "bayes", "--out", tmp_path / "early")
        for each in records:
            store.score(each.id, float(each.score), "key-1", 7000.0)
        answer("learn", url, "--with", workspace / "bayes", "--out", tmp_path / "late")
    again = run("learn", url, "--with", tmp_path / "late", "--out", tmp_path / "twice")
    assert "evidence of this store already" in again.stderr
    with Store.open(f"sqlite:///{tmp_path}/once.db") as store:
        store.append([replace(each, encoder=world.encoder.name) for each in records])
    answer("learn", f"sqlite:///{tmp_path}/once.db", "--with", workspace / "bayes", "--out", tmp_path / "once")
    late, once = (load(tmp_path / name) for name in ("late", "once"))
    assert late.router.evidence.count.sum() == once.router.evidence.count.sum()
    assert np.array_equal(late.router.evidence.products[:, 0], once.router.evidence.products[:, 0])


def test_a_name_that_a_client_has_is_refused(workspace, tmp_path):
    done = run(
        *("learn", f"client-01={store_of(workspace)}", "--with", workspace / "bayes", "--out", tmp_path / "new"),
    )
    assert done.returncode == 2
    assert "has the name of the gateway's log" in done.stderr


@pytest.mark.parametrize("source", ["store", "export"])
def test_evaluate_judges_a_router_on_the_log_with_its_propensities(workspace, source, world, tmp_path):
    log = store_of(workspace)
    if source == "export":
        log = tmp_path / "log.parquet"
        with Store.open(store_of(workspace)) as store:
            export(store, log)
    found = answer("evaluate", workspace / "kmeans", log)["judgement"]
    router, evaluations = load(workspace / "kmeans").router, world.evaluations
    grid, rows = evaluations.grid(), np.arange(evaluations.queries)
    for point in found["frontier"][::10]:
        choice = router.estimate(evaluations.embeddings).choose(point["name"])
        for what, truth in (("accuracy", grid.accuracy), ("cost", grid.cost)):
            assert abs(point[what] - truth[rows, choice].mean()) < 4 * point[f"{what}_error"] + 1e-6
    assert (found["propensities"], found["queries"] <= 1200) == ("logged", True)


def test_requests_that_a_router_was_learnt_from_do_not_judge_it(workspace, tmp_path):
    answer("learn", store_of(workspace), "--with", workspace / "kmeans", "--out", tmp_path / "new")
    done = run("evaluate", tmp_path / "new", store_of(workspace), "--json")
    assert done.returncode == 2
    assert "1,200 learned from already" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(("log", "problem"), [("sqlite:///absent.db", "absent.db"), ("absent.parquet", "no such file")])
def test_evaluate_refuses_a_log_that_is_not_there(workspace, log, problem):
    done = run("evaluate", workspace / "kmeans", log, cwd=workspace)
    assert (done.returncode, problem in done.stderr) == (2, True)


def test_importing_the_learning_package_imports_nothing_heavy():
    heavy = ("torch", "sklearn", "scipy", "pyarrow", "pandas")
    modules = ("drift", "judges", "learner", "online", "promise", "traffic")
    program = (
        f"import sys; {'; '.join(f'import fedrouter.learning.{name}' for name in modules)}; "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_bundle_a_first_router_is_learned_from_the_store(workspace, world):
    out, url = workspace / "first-from-log", store_of(workspace)
    found = answer("learn", url, "--out", out)
    assert (found["version"], found["rows"], found["family"]) == (1, {"gateway": 1200}, "bayes")
    assert load(out).router.evidence.count.sum() == 1200
    assert load(out).encoder.matches(world.encoder)
    assert "learnt_until" in load(out).clients["gateway"]
    again = run("learn", url, "--with", out, "--out", workspace / "again")
    assert "evidence of this store already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("STORE", "--router", "kmeans"), "learned from by bayes"),
        (("STORE", "other=STORE"), "learned from alone"),
        (("--with", "bayes", "--without", "STORE"), "--without: expected a file"),
    ],
)
def test_what_a_store_cannot_be_asked_is_refused(workspace, arguments, said):
    done = run(
        "learn", *(part.replace("STORE", store_of(workspace)) for part in arguments), "--out", "x", cwd=workspace
    )
    assert (done.returncode, done.stderr.count("\n"), said in done.stderr) == (2, 1, True)
