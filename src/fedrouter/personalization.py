"""Personalization: a client weighs the federated router against its own, on its own data, without the federation.

Paper, section "Adaptive Personalization for High Heterogeneity": per model, the estimator with the smaller error on the
client's training rows gets the larger weight, for accuracy and for cost separately. A router that memorizes its rows
looks better there than it is; how much that matters is measured with out-of-fold errors of the local one.
"""

from __future__ import annotations

import numpy as np

from fedrouter.engines.local import single_owner
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Floats
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import family
from fedrouter.federation.federation import NothingToLearn
from fedrouter.federation.seeds import derive
from fedrouter.routers.base import Router
from fedrouter.routers.personal import PersonalRouter

FOLDS = 3


def personalize(
    federated: Router,
    evaluations: Evaluations,
    name: str,
    settings: Settings,
    seed: int = 0,
    *,
    out_of_fold: bool = False,
    local: Router | None = None,
) -> PersonalRouter:
    """A client's personal router: the federated one and one of the family ``name``, learned from its own rows.

    Parameters
    ----------
    settings : the family's, as for a federation
    out_of_fold : weigh by the errors of local routers on rows that they were not trained on
    local : the local router, if it has been learned already
    """
    rows = evaluations.over(federated.pool)
    if not len(rows):
        raise BadInput("nothing to personalize with: no evaluation of any of the router's models")
    alone = settings.client_local().single_client()
    local = local or _learn(rows, name, alone, seed)
    ours = _out_of_fold_errors(rows, name, alone, seed) if out_of_fold else absolute_errors(local, rows)
    weights = [
        local_weight(_mean_by_model(theirs, rows), _mean_by_model(own, rows))
        for theirs, own in zip(absolute_errors(federated, rows), ours, strict=True)
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
    """Absolute errors ``(n,)`` of accuracy and of cost; NaN where the router has no estimate of the row's model."""
    estimates = router.estimate(rows.embeddings)
    return (
        np.abs(estimates.accuracy[rows.query, rows.model] - rows.accuracy),
        np.abs(estimates.cost[rows.query, rows.model] - rows.cost),
    )


def _out_of_fold_errors(rows: Evaluations, name: str, settings: Settings, seed: int) -> tuple[Floats, Floats]:
    """Absolute errors of routers, each on the fold that it was not trained on; NaN for a model only there."""
    part = np.random.default_rng(derive(seed, "personal")).permutation(rows.queries)[rows.query] % FOLDS
    found = np.full((2, len(rows)), np.nan)
    for fold in range(FOLDS):
        inside = np.flatnonzero(part == fold)
        try:
            router = _learn(rows.take(np.flatnonzero(part != fold)), name, settings, seed)
        except NothingToLearn:
            continue  # so few rows that all of them are in this fold
        found[:, inside] = absolute_errors(router, rows.take(inside))
    return found[0], found[1]


def _learn(rows: Evaluations, name: str, settings: Settings, seed: int) -> Router:
    """A router learned from these rows alone."""
    return family(name).learn(single_owner("local", rows), rows.pool, settings, seed)


def _mean_by_model(errors: Floats, rows: Evaluations) -> Floats:
    """Mean error ``(M,)`` over the rows that have one; NaN for a model without any."""
    known, size = ~np.isnan(errors), len(rows.pool)
    count = np.bincount(rows.model[known], minlength=size)
    total = np.bincount(rows.model[known], weights=errors[known], minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
