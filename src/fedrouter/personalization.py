"""Personalization: a client weighs the federated router against its own, on its own data and alone.

Paper, section "Adaptive Personalization for High Heterogeneity": per model, the estimator that errs less counts more,
for accuracy and for cost separately. The paper takes both errors on the rows the local router was trained on. A router
that remembers its rows looks better there than it is, and one with three rows of a model may have been lucky. So here
the local errors are of rows it was not trained on, and it counts only as far as its rows carry; ``paper`` gives the
paper's own weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Floats, Integers
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import Settings, family
from fedrouter.federation.federation import NothingToLearn
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.seeds import derive
from fedrouter.routers.base import Router
from fedrouter.routers.personal import PersonalRouter

FOLDS = 3
JUDGED_AFTER = 4
"""Epochs of a local network between two looks at the rows it keeps out, to stop where it was best."""
FEW_ROWS = 50
"""With so many rows of a model the local estimate counts half of what its errors alone would have it count."""


def personalize(
    federated: Router,
    evaluations: Evaluations,
    name: str,
    settings: Settings,
    seed: int = 0,
    *,
    paper: bool = False,
    local: Router | None = None,
) -> PersonalRouter:
    """A client's personal router: the federated one and one of the family ``name`` learned from its own rows.

    Parameters
    ----------
    settings : the family's, as for a federation
    local : the local router, where it has been learned already
    """
    rows = evaluations.over(federated.pool)
    if not len(rows):
        raise BadInput("nothing to personalize with: no evaluation of any of the router's models")
    local = local or _learn(rows, name, settings, seed, paper)
    ours = misses(local, rows) if paper else out_of_fold(rows, name, settings, seed)
    counts = None if paper else np.bincount(rows.model, minlength=len(rows.pool))
    weights = [
        local_weight(_per_model(theirs, rows), _per_model(own, rows), counts)
        for theirs, own in zip(misses(federated, rows), ours, strict=True)
    ]
    return PersonalRouter(federated.pool, federated, local, *weights)


def local_weight(federated: Floats, local: Floats, rows: Integers | None = None) -> Floats:
    """How much the local estimate counts, ``(M,)``, from the mean absolute errors of both.

    The paper's is ``e_fed / (e_fed + e_local)``. Given ``rows``, the number behind each error, it is the same of the
    squared errors, times ``rows / (rows + FEW_ROWS)``. NaN is for "has no estimate": without the local one the weight
    is 0, without the federated one it is 1.
    """
    if rows is not None:
        federated, local = federated**2, local**2
    total = federated + local
    weight = np.where(total > 0, federated / np.where(total > 0, total, 1.0), 0.5)
    if rows is not None:
        weight = weight * rows / (rows + FEW_ROWS)
    return np.where(np.isnan(local), 0.0, np.where(np.isnan(federated), 1.0, weight))


def _learn(rows: Evaluations, name: str, settings: Settings, seed: int, paper: bool = False) -> Router:
    """A router of these rows alone. But for the paper's form, networks stop before they know them by heart."""
    used = settings.single_client()
    if isinstance(settings, MLPSettings) and not paper:
        turns = max(1, settings.rounds * settings.local_epochs // JUDGED_AFTER)
        fraction = settings.validation_fraction or MLPSettings.validation_fraction
        used = replace(
            settings, rounds=turns, local_epochs=JUDGED_AFTER, participation=1.0, validation_fraction=fraction
        )
    return family(name).learn(LocalFederation([Client("local", rows, OPEN)]), rows.pool, used, seed)


def misses(router: Router, rows: Evaluations) -> tuple[Floats, Floats]:
    """Absolute errors ``(n,)`` of accuracy and of cost; NaN where the router knows nothing of the row's model."""
    estimates = router.estimate(rows.embeddings)
    return (
        np.abs(estimates.accuracy[rows.query, rows.model] - rows.accuracy),
        np.abs(estimates.cost[rows.query, rows.model] - rows.cost),
    )


def out_of_fold(rows: Evaluations, name: str, settings: Settings, seed: int) -> tuple[Floats, Floats]:
    """The same of local routers, each on the part of the queries that it was not trained on.

    A row whose model is known from no other part tells nothing, and is left out.
    """
    part = np.random.default_rng(derive(seed, "personal")).permutation(rows.queries)[rows.query] % FOLDS
    found = np.full((2, len(rows)), np.nan)
    for fold in range(FOLDS):
        inside = np.flatnonzero(part == fold)
        try:
            router = _learn(rows.take(np.flatnonzero(part != fold)), name, settings, seed)
        except NothingToLearn:
            continue  # so few rows that this part has them all
        found[:, inside] = misses(router, rows.take(inside))
    return found[0], found[1]


def _per_model(errors: Floats, rows: Evaluations) -> Floats:
    """Mean ``(M,)`` over the rows that have an error; NaN for a model with none."""
    known = ~np.isnan(errors)
    size = len(rows.pool)
    count = np.bincount(rows.model[known], minlength=size)
    total = np.bincount(rows.model[known], weights=errors[known], minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
