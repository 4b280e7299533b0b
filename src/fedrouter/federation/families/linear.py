"""The linear and kernel families: ridge regressions with a shared prior, learned in one shot from second moments.

First the server asks in which directions queries vary, so that few dimensions suffice, then for the moments in these
dimensions. Both are exact sums, so the router equals that of the pooled rows. With r features and M models a client
sends ``M (r(r+1)/2 + 2r + 2)`` sums of 16 bytes: 0.5 MB for r = 65 and M = 14, for any number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self, TypeVar

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.federation.families.family import Family, Settings, never_joined, train_once
from fedrouter.federation.families.kmeans import KMeansSettings, centroids_request, global_centres
from fedrouter.federation.families.mlp import ask_cost_scale, cost_scale
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, Question, ignore
from fedrouter.federation.middleware.sums import rows_of_each
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.moments import MomentsRequest
from fedrouter.federation.verbs.second_moment import SecondMomentRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.features import FeatureMap, Landmarks, Projection
from fedrouter.routers.linear import KernelRouter, LinearRouter, MomentSums, symmetric
from fedrouter.routers.mlp import CostScale


@dataclass(frozen=True)
class LinearSettings(Settings):
    """``directions`` bounds the size of messages; the strength of regularization is learned from the data."""

    directions: int = 64

    def __post_init__(self) -> None:
        if self.directions < 1:
            raise BadInput(f"directions: expected at least 1, got {self.directions}")


@dataclass(frozen=True)
class KernelSettings(Settings):
    """The number of landmarks, which are centres of federated clustering, and of clusters at each client."""

    landmarks: int = 60
    k_local: int = 15

    def __post_init__(self) -> None:
        if self.landmarks < 1 or self.k_local < 1:
            raise BadInput("landmarks and k_local: expected at least 1")

    def single_client(self) -> Self:
        """One owner of all the data clusters once."""
        return replace(self, k_local=self.landmarks)


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: LinearSettings = LinearSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> LinearRouter:
    """Learn a linear router along the leading directions of the clients' pooled second moment."""
    costs, replies = federation.ask_all(
        [Question("cost_scale", CostScaleRequest(pool.names)), Question("second_moment", SecondMomentRequest())]
    )
    unit = typical_cost(cost_scale(costs, pool)[0])
    rows = rows_of_each(replies)
    silent = [name for name, count in rows.items() if not count]
    if len(silent) == len(rows):  # without directions, the router would be the same for every query
        raise NothingToLearn("second moments of its queries", rows)
    few = f"{len(silent)} of {len(rows)} clients have too few queries to send second moments"
    callback(Progress("directions", 1, 2, tuple(rows), notes=(few,) if silent else ()))
    features = Projection(leading_directions(reduce(add, replies.values()).total.totals(), settings.directions))
    router = LinearRouter.of(pool, features, ask_moments(federation, pool, features, unit), unit)
    callback(Progress("moments", 2, 2, tuple(rows), router=router))
    return router


def learn_kernel(
    federation: Federation,
    pool: ModelPool,
    settings: KernelSettings = KernelSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> KernelRouter:
    """Learn a linear router in kernel features: similarity to the centres of federated clustering."""
    clustering = KMeansSettings(k_local=settings.k_local, k_global=settings.landmarks)
    costs, centroids = federation.ask_all(
        [
            Question("cost_scale", CostScaleRequest(pool.names)),
            Question("cluster", centroids_request(clustering, seed)),
        ]
    )
    unit = typical_cost(cost_scale(costs, pool)[0])
    centres = global_centres(centroids, clustering, seed)
    callback(Progress("landmarks", 1, 2, tuple(federation.clients())))
    features = Landmarks.at(centres)
    router = KernelRouter.of(pool, features, ask_moments(federation, pool, features, unit), unit)
    callback(Progress("moments", 2, 2, tuple(federation.clients()), router=router))
    return router


def ask_unit(federation: Federation, pool: ModelPool) -> Floats:
    """Each model's typical cost ``(M,)``: the geometric mean, used as its unit of cost."""
    return typical_cost(ask_cost_scale(federation, pool)[0])


def typical_cost(scale: CostScale) -> Floats:
    """The geometric mean of each model's costs, ``(M,)`` dollars."""
    return np.exp(scale.mean)


def ask_moments(federation: Federation, pool: ModelPool, features: FeatureMap, unit: Floats) -> MomentSums:
    """The total of the clients' moments."""
    replies = federation.ask("moments", MomentsRequest(pool.names, features.arrays(), unit))
    if not any(reply.count.any() for reply in replies.values()):
        raise NothingToLearn("moments of features", rows_of_each(replies))
    return reduce(add, (reply.sums() for reply in replies.values()))


def leading_directions(triangle: Floats, most: int) -> Embeddings:
    """The leading eigenvectors ``(d, r)`` of a second moment, each with its largest component positive."""
    values, vectors = np.linalg.eigh(symmetric(triangle))
    keep = [index for index in np.argsort(-values, kind="stable")[:most] if values[index] > 1e-9 * values[-1]]
    vectors = vectors[:, keep]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(keep))])
    return np.asarray(vectors * signs, np.float32)


AnyLinear = TypeVar("AnyLinear", bound=LinearRouter)


def add_models(
    router: AnyLinear,
    federation: Federation,
    models: ModelPool,
    settings: Any = None,
    seed: int = 0,
    callback: Callback = ignore,
) -> AnyLinear:
    """Add models: the clients' moments of them, in the existing features, become new rows."""
    unit = ask_unit(federation, models)
    sums = router.sums.beside(ask_moments(federation, models, router.features, unit))
    pool = router.pool.with_models(models)
    grown = type(router).of(pool, router.features, sums, np.concatenate([router.unit, unit]))
    callback(Progress("moments", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def add_clients(
    router: AnyLinear, federation: Federation, settings: Any = None, seed: int = 0, callback: Callback = ignore
) -> AnyLinear:
    """Add clients: their moments are added. A model that nobody had evaluated takes its unit of cost from them."""
    unit = np.where(router.sums.count > 0, router.unit, ask_unit(federation, router.pool))
    sums = router.sums + ask_moments(federation, router.pool, router.features, unit)
    grown = type(router).of(router.pool, router.features, sums, unit)
    callback(Progress("moments", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def remove_clients(router: AnyLinear, federation: Federation) -> AnyLinear:
    """Remove clients: their moments are subtracted, exactly. Directions and units, which they helped to find, stay."""
    left = router.sums - ask_moments(federation, router.pool, router.features, router.unit)
    if not left.possible:
        raise never_joined(router.family)
    # A model without rows gets the unit it has when nobody has evaluated it.
    return type(router).of(router.pool, router.features, left, np.where(left.count > 0, router.unit, 1.0))


FAMILY = Family(
    name="linear",
    title="linear",
    description="Bayesian linear regression of accuracy and cost on the embedding",
    router=LinearRouter,
    settings=LinearSettings,
    paper=None,
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    charged_questions=None,
    candidate=True,
    incremental=True,
    pooled=train_once,
    extra=None,
    random=False,
)
KERNEL_FAMILY = Family(
    name="kernel",
    title="kernel",
    description="Bayesian regression on the similarity to landmarks (an approximate Gaussian process)",
    router=KernelRouter,
    settings=KernelSettings,
    paper=None,
    learn=learn_kernel,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    charged_questions=None,
    candidate=True,
    incremental=True,
    pooled=train_once,
    extra=None,
    random=True,
)
