"""The protocol that experiments share: the pool of models, and what is compared."""

import numpy as np
import pytest

from conftest import drawn_evaluations, full_grid
from fedrouter.data.partition import ClientData
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.protocol import compare
from fedrouter.federation.families.bayes import BayesSettings
from fedrouter.federation.families.kmeans import KMeansSettings


def client(name: str, models: tuple[int, ...]) -> ClientData:
    """A client with training rows of some of four models, and test rows of all."""
    rows = drawn_evaluations(queries=120, models=4, seed=ord(name))
    truth = full_grid(queries=30, models=4, seed=ord(name))
    query, model = (index.ravel() for index in np.indices(truth.accuracy.shape))
    embeddings = drawn_evaluations(queries=30, seed=ord(name) + 1).embeddings
    test = Evaluations(rows.pool, embeddings, query, model, truth.accuracy.ravel(), truth.cost.ravel())
    return ClientData(name, rows.take(np.flatnonzero(np.isin(rows.model, models))), test)


SPLIT = [client("a", (0, 1, 2, 3)), client("b", (0, 1, 2)), client("c", (0, 1))]
SETTINGS = {"kmeans": KMeansSettings(4, 5)}


@pytest.mark.parametrize("privacy", ["default", "exact"])
def test_models_that_fewer_than_three_clients_know_are_left_out_and_named(privacy):
    found = compare(SPLIT, SETTINGS, privacy=privacy)
    assert list(found.pool.names) == ["model-0", "model-1"]
    assert found.routers["kmeans"].pool.names == found.pool.names
    assert found.warnings[0] == "left out, because fewer than three clients have evaluated it: model-2, model-3"
    assert all((one.train.model < 2).all() for one in found.clients)


def test_without_protection_every_model_is_learned():
    found = compare(SPLIT, SETTINGS, privacy="open")
    assert len(found.pool) == 4
    assert not found.notes


def test_a_personal_router_is_compared_on_each_clients_own_test():
    found = compare(SPLIT, {"bayes": BayesSettings((0,))}, privacy="exact")
    assert set(found.personal["bayes"]) == {"a", "b", "c"}
    assert not compare(SPLIT, {"bayes": BayesSettings((0,))}, privacy="open").personal


def test_clients_without_a_model_in_common_are_refused():
    alone = [client("a", (0,)), client("b", (1,))]
    with pytest.raises(BadInput, match="no model was evaluated by three clients"):
        compare(alone, SETTINGS, privacy="default")
