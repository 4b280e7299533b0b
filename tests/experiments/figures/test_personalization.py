"""Personalization: every way on every able client's own test, the others counted, the losers listed."""

import pytest

from experiments.small_world import check_what_it_says, measured, small_world
from fedrouter.experiments.comparison import weighted
from fedrouter.experiments.figures.personalization import EXPERIMENT

pytestmark = pytest.mark.slow  # every experiment once

NAMES = {
    "personalization-federated-below-local-mlp",
    "personalization-kmeans-robust",
    "personalization-mlp",
    "personalization-kmeans",
    "personalization-in-sample-mlp",
    "personalization-in-sample-kmeans",
}
WAYS = ("federated", "local", "in-sample", "out-of-fold")


def lopsided(seed):
    """So few tasks that at α = 0.03 some clients get none."""
    return small_world(tasks=6, seed=seed)


@pytest.fixture(scope="module")
def runs():
    return [measured(EXPERIMENT, lopsided(seed)) for seed in (0, 1)]


def test_the_experiment_says_what_every_experiment_says(runs):
    check_what_it_says(EXPERIMENT, runs, NAMES)


def test_clients_with_nothing_to_learn_from_or_to_be_tested_on_are_counted(runs):
    for run in runs:
        clients = {client.name: client for client in lopsided(run["seed"]).clients(alpha=0.03)}
        able = {name for name, client in clients.items() if len(client.train) and client.test.queries}
        assert {client["name"] for client in run["clients"]} == able
        assert set(run["left_out"]) == set(clients) - able
        assert run["left_out"]
    assert EXPERIMENT.summary(runs)["clients left out"] == {str(run["seed"]): run["left_out"] for run in runs}


def test_every_able_client_is_tested_in_every_way(runs):
    for run in runs:
        names = [client["name"] for client in run["clients"]]
        for family in ("mlp", "kmeans"):
            for way in WAYS:
                entries = [e for e in run["curves"] if (e["family"], e["way"]) == (family, way)]
                assert [entry["test"] for entry in entries] == names


def test_personal_routers_are_compared_with_what_is_better_on_average_and_client_by_client(runs):
    values = {
        "federated": (0.9, 0.1),
        "local": (0.3, 0.5),
        "in-sample": (0.6, 0.5),
        "out-of-fold": (0.7, 0.5),
    }
    clients = [{**client, "test": 10} for client in runs[0]["clients"][:2]]
    curves = [
        {"family": family, "way": way, "test": client["name"], "auc": area, "aiq": area}
        for family in ("mlp", "kmeans")
        for way in WAYS
        for client, area in zip(clients, values[way], strict=True)
    ]
    twice = [{**runs[seed], "seed": seed, "clients": clients, "curves": curves} for seed in (0, 1)]
    claims = {c.name: c for c in EXPERIMENT.claims(twice)}
    assert claims["personalization-mlp"].verdict == "holds"  # 0.55 against 0.5
    assert claims["personalization-in-sample-mlp"].verdict == "refuted"  # 0.55 against 0.6, one change apart
    assert claims["personalization-federated-below-local-mlp"].verdict == "holds"
    assert "2 of 4 clients" in claims["personalization-federated-below-local-mlp"].measured
    assert claims["personalization-kmeans-robust"].verdict == "refuted"  # for what is shown of the MLP


def test_k_means_is_robust_where_no_client_falls_below(runs):
    level = [{**run, "curves": [{**entry, "auc": 0.5} for entry in run["curves"]]} for run in runs]
    claims = {claim.name: claim for claim in EXPERIMENT.claims(level)}
    assert claims["personalization-kmeans-robust"].verdict == "holds"
    assert "rows, median over clients" in claims["personalization-kmeans-robust"].measured


def test_means_over_clients_are_weighted_by_their_test_queries(runs):
    run = runs[0]
    first, second = run["clients"][:2]
    clients = [{**first, "test": 30}, {**second, "test": 10}]
    curves = [
        {"family": "mlp", "way": "local", "test": client["name"], "auc": area}
        for client, area in zip(clients, (1.0, 0.0), strict=True)
    ]
    assert weighted([{"clients": clients, "curves": curves}], family="mlp", way="local")("auc") == [0.75]
