"""`auto` on real data: better than the paper's K-Means, never below ignoring the query."""

import numpy as np
import pytest

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import sweep

pytestmark = pytest.mark.slow
ROUTERS = {
    "auto": ("auto", FAMILIES["auto"].settings()),
    "paper": ("kmeans", KMeansSettings(paper=True)),
    "blind": ("query_blind", FAMILIES["query_blind"].settings()),
}


@pytest.fixture(scope="module", params=["routerbench_subset", "llmrouter_mix"])
def areas(request, real_data):
    """``aiq`` by router, one for each of three seeds."""
    evaluations = read(real_data / f"{request.param}.parquet").evaluations
    found = {name: [] for name in ROUTERS}
    for seed in range(3):
        clients = partition(evaluations, seed=seed)
        federation = LocalFederation(Client(client.name, client.train, OPEN) for client in clients)
        test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
        for name, (family, settings) in ROUTERS.items():
            router = FAMILIES[family].learn(federation, evaluations.pool, settings, seed)
            found[name].append(sweep(router.estimate(test.embeddings), test.grid()).measures.aiq)
    return {name: np.mean(values) for name, values in found.items()}


def test_auto_is_at_least_the_papers_kmeans(areas):
    assert areas["auto"] >= areas["paper"] - 0.003


def test_auto_is_at_least_query_blind(areas):
    assert areas["auto"] >= areas["blind"] - 0.003
