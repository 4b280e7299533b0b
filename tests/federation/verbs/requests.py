"""One request of every verb that a client can answer from its rows alone, for the tests of all verbs."""

import numpy as np

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import ClusterRequest, StatisticsRequest
from fedrouter.federation.families.mlp import CostsRequest, TrainRequest
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.excluded import ExcludedRequest
from fedrouter.federation.verbs.follow import FollowRequest
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.keys import KeysRequest
from fedrouter.federation.verbs.release import ReleaseRequest
from fedrouter.federation.verbs.vote import VoteRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale, initial_weights

MODELS = ("model-0", "model-1", "model-2")
POOL = ModelPool(MODELS)
WIDTH = 8


def requests():
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(4, WIDTH)).astype(np.float32)
    scale = CostScale(np.full(3, 50), np.array([1e-5, 1e-4, 1e-3]), np.full(3, 1e-5))
    weights = initial_weights(WIDTH, (4,), 3, 0)
    family = FAMILIES["kmeans"]
    member = LocalFederation([Client("one", drawn_evaluations(seed=9), OPEN)])
    router = family.learn(member, POOL, family.settings(k_local=3, k_global=3))
    return {
        "hello": HelloRequest(),
        "cluster": ClusterRequest(4, 1, 5, seed=0),
        "statistics": StatisticsRequest(centres, MODELS),
        "costs": CostsRequest(MODELS),
        "train": TrainRequest(MODELS, weights, scale, 1, 32, 1e-3, 0.0, 1.0, 0.1, 0),
        "release": ReleaseRequest(MODELS),
        "keys": KeysRequest("a session", 2),
        "excluded": ExcludedRequest("statistics", "counts that no values have"),
        "follow": FollowRequest.of("a run", "its job", 0, []),
        "vote": VoteRequest.of(router),
    }
