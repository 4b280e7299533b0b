"""Growing and personalizing as a user does it: files in, a new version of the bundle out."""

import json

import numpy as np
import pytest

from cli.command import answer, run
from conftest import write_log
from fedrouter.bundle import Provenance, load, save
from fedrouter.data.partition import partition
from fedrouter.data.split import write_table
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.pool import ModelPool

WITHHELD = 2


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, world):
    """A folder with a test table, four clients' logs, and bundles learned from the first three without two models."""
    folder = tmp_path_factory.mktemp("growth")
    some = world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 4))
    clients = partition(some, clients=4, seed=1)
    old = ModelPool(list(some.pool)[:-WITHHELD])
    write_table(folder / "test.parquet", some.of_queries(np.arange(0, some.queries, 5)), world.encoder)
    for client in clients:
        write_log(folder / f"{client.name}.parquet", client.train)
    founders = [(client.name, client.train.over(old)) for client in clients[:3]]
    for name in ("kmeans", "mlp", "auto"):
        family = FAMILIES[name]
        settings = family.settings(rounds=2) if name == "mlp" else family.settings()
        router = family.learn(LocalFederation(Client(*founder, OPEN) for founder in founders), old, settings)
        entries = [{"name": who, "rows": len(rows)} for who, rows in founders]
        hyperparameters = {"rounds": 2} if name == "mlp" else {}
        save(folder / name, router, world.encoder, Provenance("world", "sha256:0", 0, 2, entries, hyperparameters))
    return folder


def logs(folder, *numbers):
    return [part for n in numbers for part in ("--client", f"client-{n}={folder}/client-{n}.parquet")]


@pytest.mark.parametrize("name", ["kmeans", "mlp", "auto"])
def test_models_are_added_to_a_new_version_that_names_its_parent(workspace, name, world, tmp_path):
    new = world.evaluations.pool.names[-WITHHELD:]
    out = tmp_path / "grown"
    arguments = ["model", "add", workspace / name, *new, *logs(workspace, 1, 2, 3), "--rounds", 2]
    document = answer(*arguments, "--out", out, "--test", workspace / "test.parquet")
    parent, child = load(workspace / name), load(out)
    assert document["parent"] == child.manifest["parent"] == parent.manifest["digest"]
    assert (parent.version, child.version) == (1, 2)
    assert child.router.pool.names == (*parent.router.pool.names, *new)
    assert child.manifest["change"]["models"] == list(new)
    assert document["areas"]["after"]["auc"] != document["areas"]["before"]["auc"]
    rows = {name: entry["rows"] for name, entry in child.clients.items()}
    assert rows == {n: entry["rows"] + document["rows"][n] for n, entry in parent.clients.items()}


@pytest.mark.parametrize("name", ["kmeans", "auto"])
def test_a_client_joins_leaves_and_nothing_of_it_is_left(workspace, name, tmp_path):
    joined = answer("client", "join", workspace / name, *logs(workspace, 4), "--out", tmp_path / "two")
    assert joined["clients"][-1] == "client-4"
    assert joined["rows"]["client-4"] > 0
    left = answer("client", "leave", tmp_path / "two", *logs(workspace, 4), "--out", tmp_path / "three")
    assert left["clients"] == ["client-1", "client-2", "client-3"]
    assert left["version"] == 3
    first, third = load(workspace / name), load(tmp_path / "three")
    assert third.manifest["arrays"] == first.manifest["arrays"]  # the same bytes


def test_who_leaves_after_being_there_from_the_start_is_told_what_stays(workspace, tmp_path, world):
    new = world.evaluations.pool.names[-WITHHELD:]
    answer("model", "add", workspace / "kmeans", *new, *logs(workspace, 1, 2, 3), "--out", tmp_path / "two")
    done = run("client", "leave", tmp_path / "two", *logs(workspace, 2), "--out", tmp_path / "three")
    assert done.returncode == 0, done.stderr
    assert "client-2 took part when the router was first learned" in " ".join(done.stdout.split())
    assert load(tmp_path / "three").router.sums.count.sum() < load(tmp_path / "two").router.sums.count.sum()


def test_mlp_clients_join_with_distillation_and_cannot_leave(workspace, tmp_path):
    test = ("--test", workspace / "test.parquet")
    document = answer(
        "client", "join", workspace / "mlp", *logs(workspace, 4), "--rounds", 2, "--out", tmp_path / "two", *test
    )
    assert set(document["areas"]) == {"before", "after"}
    done = run("client", "leave", tmp_path / "two", *logs(workspace, 4), "--out", tmp_path / "three")
    assert done.returncode == 2
    assert "a client cannot be subtracted" in done.stderr
    assert not (tmp_path / "three").exists()


def test_a_personal_router_routes_and_evaluates_like_any_other(workspace, tmp_path):
    log = workspace / "client-1.parquet"
    document = answer("personalize", workspace / "kmeans", "--data", log, "--out", tmp_path / "mine")
    assert all(0 <= entry["accuracy"] < 1 for entry in document["weights"].values())
    assert {name for name, entry in document["weights"].items() if not entry["rows"]} == {
        name for name, entry in document["weights"].items() if not entry["accuracy"]
    }
    judged = answer("evaluate", tmp_path / "mine", "--data", workspace / "test.parquet")
    assert 0 < judged["areas"]["auc"] < 1
    routed = answer("route", tmp_path / "mine", "Sum the numbers from 1 to 10.", "--tradeoff", 10)
    assert routed["family"] == "personal"
    papers = answer("personalize", workspace / "kmeans", "--data", log, "--out", tmp_path / "papers", "--paper")
    assert papers["weights"] != document["weights"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["client", "join", "kmeans", "--client", "client-1=client-1.parquet"], "already a client of this router"),
        (["client", "join", "kmeans", "--client", "client-4.parquet"], "expected NAME=FILE"),
        (["client", "join", "kmeans", "--client", "x=nowhere.parquet"], "nowhere.parquet: no such file"),
        (["client", "leave", "kmeans", "--client", "client-9=client-1.parquet"], "not a client of this router"),
        (["client", "leave", "kmeans", "--client", "client-1=client-2.parquet"], "evaluations it contributed"),
        (["model", "add", "kmeans", "nobody's", "--client", "client-1=client-1.parquet"], "none of the logs"),
        (["model", "add", "kmeans", "LAST", "--client", "client-4=client-4.parquet"], "let them join first"),
        (["model", "add", "kmeans", "FIRST", "--client", "client-1=client-1.parquet"], "already in the pool"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(workspace, tmp_path, world, arguments, said):
    names = world.evaluations.pool.names
    words = {"LAST": names[-1], "FIRST": names[0]}
    done = run(*(words.get(a, a) for a in arguments), "--out", tmp_path / "new", cwd=workspace)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "new").exists()


def test_a_bundle_is_never_overwritten(workspace):
    done = run("client", "join", workspace / "kmeans", *logs(workspace, 4), "--out", workspace / "mlp")
    assert done.returncode == 2
    assert "never overwritten" in done.stderr
    assert json.loads((workspace / "mlp" / "bundle.json").read_text())["family"] == "mlp"
