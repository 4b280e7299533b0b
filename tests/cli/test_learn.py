"""Learning from a log and judging on one, as a user does it: a store in, a new version or a table out."""

import json
import subprocess
import sys

import numpy as np
import pytest

from cli.command import answer, run
from fedrouter.bundle import Provenance, load, save
from fedrouter.data.partition import partition
from fedrouter.learning.traffic import evaluations_of
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
    for family in ("kmeans", "auto"):
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


@pytest.mark.parametrize("family", ["kmeans", "auto"])
def test_learning_folds_the_scored_requests_into_a_new_version(workspace, family, world, tmp_path):
    document = answer(
        "learn", "--bundle", workspace / family, "--store", store_of(workspace), "--out", tmp_path / "new"
    )
    parent, child = load(workspace / family), load(tmp_path / "new")
    assert document["parent"] == child.manifest["parent"] == parent.manifest["digest"]
    assert (document["version"], child.version) == (2, 2)
    assert document["rows"] + sum(document["waiting"].values()) == 1200
    assert child.clients["gateway"]["rows"] == document["rows"]
    truth = world.evaluations.grid()
    miss = [
        np.nanmean((bundle.router.estimate(world.evaluations.embeddings).accuracy - truth.accuracy) ** 2)
        for bundle in (parent, child)
    ]
    assert miss[1] < miss[0]


def test_learning_twice_counts_nothing_twice_and_takes_late_and_corrected_scores(workspace, world, tmp_path):
    """In three steps, with late scores and corrections, the same sums as in one step at the end."""
    url = f"sqlite:///{tmp_path}/copy.db"
    draw = np.random.default_rng(1)
    records, scores = logged(
        world.evaluations, load(workspace / "kmeans").router, world.encoder, 300, draw, start=5000.0
    )
    bundle = workspace / "kmeans"
    with Store.open(url) as store:
        store.append(records)
        for row in range(0, 200, 2):
            store.score(records[row].id, float(scores[row]), "key-1", 6000.0 + row)
        answer("learn", "--bundle", bundle, "--store", url, "--out", tmp_path / "two")
        for row in range(1, 300, 2):  # late ones
            store.score(records[row].id, float(scores[row]), "key-1", 7000.0 + row)
        for row in range(0, 20, 2):  # corrections
            store.score(records[row].id, 0.125, "key-1", 8000.0 + row)
        second = answer("learn", "--bundle", tmp_path / "two", "--store", url, "--out", tmp_path / "three")
        assert second["corrected"] > 0
        nothing = run("learn", "--bundle", tmp_path / "three", "--store", url, "--out", tmp_path / "four")
        assert nothing.returncode == 2
        assert "nothing to learn" in nothing.stderr
        answer("learn", "--bundle", bundle, "--store", url, "--out", tmp_path / "at-once")
        rows, _ = evaluations_of(store.rows(scored_only=True), world.evaluations.pool, world.encoder)
    assert arrays(tmp_path / "three") == arrays(tmp_path / "at-once")
    assert len(rows) == 250
    stepwise, at_once = (load(tmp_path / name).clients["gateway"] for name in ("three", "at-once"))
    assert stepwise["rows"] == at_once["rows"]
    assert stepwise["waiting"] == at_once["waiting"]


def test_a_personal_router_is_made_and_made_anew(workspace, tmp_path):
    url = store_of(workspace)
    first = answer("learn", "--bundle", workspace / "kmeans", "--store", url, "--out", tmp_path / "mine", "--personal")
    assert first["change"]["family"] == "personal"
    again = answer("learn", "--bundle", tmp_path / "mine", "--store", url, "--out", tmp_path / "anew")
    assert (again["version"], again["rows"]) == (3, first["rows"])
    assert arrays(tmp_path / "anew") == arrays(tmp_path / "mine")


def test_a_name_that_a_client_has_is_refused(workspace, tmp_path):
    done = run(
        *("learn", "--bundle", workspace / "kmeans", "--store", store_of(workspace)),
        *("--out", tmp_path / "new", "--name", "client-01"),
    )
    assert done.returncode == 2
    assert "took part in the federation" in done.stderr


@pytest.mark.parametrize("source", ["store", "export"])
def test_evaluate_judges_a_router_on_the_log(workspace, source, world, tmp_path):
    log = store_of(workspace)
    if source == "export":
        log = tmp_path / "log.parquet"
        with Store.open(store_of(workspace)) as store:
            store.export(log)
    document = answer("evaluate", workspace / "auto", "--log", log, "--tradeoff", 5, "--tradeoff", 500)
    router, evaluations = load(workspace / "auto").router, world.evaluations
    grid, rows = evaluations.grid(), np.arange(evaluations.queries)
    for found, tradeoff in zip(document["estimates"], (5, 500), strict=True):
        choice = router.estimate(evaluations.embeddings).choose(tradeoff)
        for what, truth in (("accuracy", grid.accuracy), ("cost", grid.cost)):
            mean = found["doubly_robust"][what]
            assert abs(mean["value"] - truth[rows, choice].mean()) < 4 * mean["error"]
        assert found["requests"] == document["requests"] == 1200
        assert found["tradeoff"] == tradeoff
    assert document["left_out"] == ({"no score": 300} if source == "store" else {})


def test_requests_that_a_router_was_learnt_from_do_not_judge_it(workspace, tmp_path):
    answer("learn", "--bundle", workspace / "kmeans", "--store", store_of(workspace), "--out", tmp_path / "new")
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
    modules = ("exploration", "offpolicy", "incremental", "judges", "panel", "traffic")
    program = (
        f"import sys; {'; '.join(f'import fedrouter.learning.{name}' for name in modules)}; "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_bundle_a_first_router_is_learned_from_the_log(workspace):
    out = workspace / "first-from-log"
    found = answer("learn", "--store", f"sqlite:///{workspace}/log.db", "--router", "linear", "--out", out)
    assert (found["version"], found["rows"]) == (1, 1200)
    saved = load(out)
    assert saved.clients["gateway"]["learnt_until"] == found["learnt_until"]
    again = run("learn", "--bundle", out, "--store", f"sqlite:///{workspace}/log.db", "--out", workspace / "again")
    assert "nothing to learn" in again.stderr  # it knows how far it has read


def test_a_first_router_is_learned_from_one_file_alone_and_from_several_as_a_federation(tmp_path):
    lines = ["prompt,model,accuracy,cost"]
    for number in range(40):
        lines += [f"What is {number} plus 1?,small,1,0.0001", f"What is {number} plus 1?,large,1,0.01"]
        lines += [
            f"Prove theorem {number} of topology,small,0,0.0001",
            f"Prove theorem {number} of topology,large,1,0.01",
        ]
    (tmp_path / "bank.csv").write_text("\n".join(lines))
    (tmp_path / "few.csv").write_text("\n".join(lines[:9]))
    few = run("learn", "--client", f"few={tmp_path}/few.csv", "--router", "linear", "--out", tmp_path / "few")
    assert "warning 8 evaluations say little" in few.stdout
    (tmp_path / "clinic.csv").write_text("\n".join(lines).replace("theorem", "lemma"))
    (tmp_path / "shop.csv").write_text("\n".join(lines).replace("theorem", "claim"))
    bank, clinic, shop = (f"{name}={tmp_path}/{name}.csv" for name in ("bank", "clinic", "shop"))
    alone = answer("learn", "--client", bank, "--router", "linear", "--out", tmp_path / "alone")
    assert alone["rows"] == {"bank": 160}
    logs = ("--client", bank, "--client", clinic, "--client", shop)
    together = answer("learn", *logs, "--router", "linear", "--out", tmp_path / "together")
    assert together["rows"] == {"bank": 160, "clinic": 160, "shop": 160}
    assert set(load(tmp_path / "together").clients) == {"bank", "clinic", "shop"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--client", "bank"], "--client: expected NAME=FILE, got 'bank'"),
        (["--client", "a=x.csv", "--client", "a=y.csv"], "--client: a is named twice"),
        (["--personal"], "expected --bundle"),
    ],
)
def test_a_wrong_first_router_is_refused_in_one_line(options, message, tmp_path):
    failed = run("learn", *options, "--out", tmp_path / "out")
    assert (failed.returncode, message in failed.stderr) == (2, True)
    assert not (tmp_path / "out").exists()
