"""The paper's claims on real data: five seeds of the whole protocol on a subset of RouterBench."""

import numpy as np
import pytest

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.protocol import compare
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings

pytestmark = pytest.mark.slow
SETTINGS = {"kmeans": KMeansSettings(), "mlp": MLPSettings(rounds=20)}
PRINTED = {"kmeans": KMeansSettings(k_global=20)}


@pytest.fixture(scope="module")
def clients(real_data):
    evaluations = read(real_data / "routerbench_subset.parquet", encoder="all-mpnet-base-v2").evaluations
    return [partition(evaluations, seed=seed) for seed in range(5)]


@pytest.fixture(scope="module")
def runs(clients):
    return [compare(each, SETTINGS, seed) for seed, each in enumerate(clients)]


@pytest.fixture(scope="module")
def printed(clients):
    return [compare(each, PRINTED, seed) for seed, each in enumerate(clients)]


def area(runs, way, family):
    return np.mean([run.curves[way][family].measures()["global"].auc for run in runs])


@pytest.mark.parametrize(("family", "margin"), [("kmeans", 0.08), ("mlp", 0.05)])
def test_federated_beats_the_mean_client_local_router(runs, family, margin):
    assert area(runs, "federated", family) >= area(runs, "local", family) + margin


@pytest.mark.parametrize("family", ["kmeans", "mlp"])
def test_federated_is_close_to_centralized(runs, family):
    assert area(runs, "federated", family) >= area(runs, "centralized", family) - 0.03


@pytest.mark.parametrize(
    ("way", "family", "elsewhere"),
    [("federated", "kmeans", 0.822), ("federated", "mlp", 0.814), ("local", "mlp", 0.726)],
)
def test_areas_agree_with_an_independent_measurement(runs, way, family, elsewhere):
    assert area(runs, way, family) == pytest.approx(elsewhere, abs=0.03)


@pytest.mark.parametrize(("way", "elsewhere"), [("federated", 0.739), ("local", 0.626)])
def test_areas_with_the_published_number_of_clusters_agree_with_an_independent_measurement(printed, way, elsewhere):
    assert area(printed, way, "kmeans") == pytest.approx(elsewhere, abs=0.03)


@pytest.mark.parametrize(("family", "off"), [("kmeans", 1e-6), ("mlp", 1 / 6)])
def test_predicted_and_observed_dollars_agree_for_every_model(runs, family, off):
    """Means of clusters add up to what was paid; a network with the paper's loss is off by up to a seventh here."""
    for run in runs:
        train = Evaluations.concatenate([client.train for client in run.clients])
        predicted = run.routers[family].estimate(train.embeddings).cost[train.query, train.model]
        for place in range(len(train.pool)):
            rows = train.model == place
            assert predicted[rows].sum() == pytest.approx(train.cost[rows].sum(), rel=off)


@pytest.mark.parametrize("name", ["routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2"])
def test_every_real_file_reads(real_data, name):
    dataset = read(real_data / f"{name}.parquet")
    assert dataset.encoder.name == "all-mpnet-base-v2"
    assert dataset.encoder.normalised
    assert dataset.evaluations.grid().known.all()
