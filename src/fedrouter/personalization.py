"""Personalization: a client weighs the federated router against its own, on its own data, without the federation.

Paper, section "Adaptive Personalization for High Heterogeneity": per model, the estimator with the smaller error on the
client's training rows gets the larger weight, for accuracy and for cost separately.
"""

from __future__ import annotations

import numpy as np

from fedrouter.engines.local import single_owner
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Floats
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import family
from fedrouter.routers.base import Router
from fedrouter.routers.personal import PersonalRouter


def personalize(
    federated: Router,
    evaluations: Evaluations,
    name: str,
    settings: Settings,
    seed: int = 0,
    *,
    local: Router | None = None,
) -> PersonalRouter:
    """A client's personal router: the federated one and one of the family ``name``, learned from its own rows.

    Parameters
    ----------
    settings : the family's, as for a federation
    local : the local router, if it has been learned already
    """
    rows = evaluations.over(federated.pool)
    if not len(rows):
        raise BadInput("nothing to personalize with: no evaluation of any of the router's models")
    if local is None:
        alone = settings.client_local().single_client()
        local = family(name).learn(single_owner("local", rows), rows.pool, alone, seed)
    weights = [
        local_weight(theirs, ours)
        for theirs, ours in zip(absolute_errors(federated, rows), absolute_errors(local, rows), strict=True)
    ]
    return PersonalRouter(federated.pool, federated, local, *weights)


def local_weight(federated: Floats, local: Floats) -> Floats:
    """The weight of the local estimate of each model, ``(M,)``, from the mean absolute errors of both routers.

    It is ``e_fed / (e_fed + e_local)``. NaN means that a router has no estimate: without the local one the weight is
    0, without the federated one it is 1.
    """
    total = federated + local
    weight = np.where(total > 0, federated / np.where(total > 0, total, 1.0), 0.5)
    return np.where(np.isnan(local), 0.0, np.where(np.isnan(federated), 1.0, weight))


def absolute_errors(router: Router, rows: Evaluations) -> tuple[Floats, Floats]:
    """Mean absolute errors ``(M,)`` of accuracy and of cost; NaN for a model without rows or without an estimate."""
    estimates, size = router.estimate(rows.embeddings), len(rows.pool)

    def mean(estimated: Floats, observed: Floats) -> Floats:
        errors = np.abs(estimated[rows.query, rows.model] - observed)
        known = ~np.isnan(errors)
        count = np.bincount(rows.model[known], minlength=size)
        total = np.bincount(rows.model[known], weights=errors[known], minlength=size)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    return mean(estimates.accuracy, rows.accuracy), mean(estimates.cost, rows.cost)
