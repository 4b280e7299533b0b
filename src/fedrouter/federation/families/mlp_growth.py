"""The MLP family, and how its routers grow: heads for new models, and continued training with new clients.

Paper, sections "When New Models are Added to the Pool" and "When New Clients Join the System". Clients cannot be
removed: what the weights learned from a client cannot be subtracted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.federation.families import mlp
from fedrouter.federation.families.epochs import choose_epochs
from fedrouter.federation.families.family import TRAINED_WEIGHTS, Family
from fedrouter.federation.families.mlp import MLPSettings, ask_cost_correction, ask_cost_scale, average_rounds
from fedrouter.federation.federation import Callback, Federation, ignore
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import HEADS, CostScale, MLPRouter, Weights


def add_models(
    router: MLPRouter,
    federation: Federation,
    models: ModelPool,
    settings: MLPSettings = MLPSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MLPRouter:
    """Add models: append a head for each and train only these; the trunk and the old heads keep every bit.

    Only the trunk and the new heads are sent. A new head starts at the mean of the old ones: a model about which
    nothing is known is most likely similar to the others.
    """
    pool = router.pool.with_models(models)
    scale = _scale(router, federation, models)
    seen = router.scale.count > 0
    trunk = {name: array for name, array in router.weights.items() if not name.startswith(HEADS)}
    heads = {
        name: np.repeat(array[seen].mean(axis=0, keepdims=True), len(models), axis=0)
        for name, array in router.weights.items()
        if name.startswith(HEADS)
    }
    chosen = replace(settings, participation=1.0, local_epochs=settings.head_epochs)
    best = average_rounds(federation, models, {**trunk, **heads}, scale, chosen, seed, callback, heads_only=True)
    scale = ask_cost_correction(federation, models, best, scale)
    grown: Weights = {
        name: np.concatenate([array, best[name]]) if name in heads else array for name, array in router.weights.items()
    }
    return MLPRouter(pool, grown, _joined(router.scale, scale))


def add_clients(
    router: MLPRouter,
    federation: Federation,
    settings: MLPSettings = MLPSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MLPRouter:
    """Add clients: training continues with them alone; ``settings.distillation`` keeps it close to the old router.

    The cost scale of a model and its correction stay. A model that nobody had evaluated takes them from the new
    clients, and its head is not distilled, because it was never trained.
    """
    pool, old = router.pool, router.scale
    theirs = _scale(router, federation, pool)
    seen = old.count > 0
    scale = CostScale(
        old.count + theirs.count,
        np.where(seen, old.mean, theirs.mean),
        np.where(seen, old.deviation, theirs.deviation),
        np.where(seen, old.correction, 1.0),
    )
    growth = {}
    if settings.distillation:
        anchored = tuple(name for name, known in zip(pool.names, seen, strict=True) if known)
        growth = {"base": router.weights, "anchored": anchored, "distillation": settings.distillation}
    best = average_rounds(federation, pool, router.weights, scale, settings, seed, callback, **growth)
    corrected = ask_cost_correction(federation, pool, best, scale).correction
    return MLPRouter(pool, best, replace(scale, correction=np.where(seen, old.correction, corrected)))


def _scale(router: MLPRouter, federation: Federation, pool: ModelPool) -> CostScale:
    scale, dimension = ask_cost_scale(federation, pool)
    if dimension != router.dimension:
        raise BadInput(f"the clients' embeddings have width {dimension}, the router expects {router.dimension}")
    return scale


def _joined(first: CostScale, second: CostScale) -> CostScale:
    """The cost scales of both: the first's models, then the second's."""
    return CostScale(*(np.concatenate([getattr(part, name) for part in (first, second)]) for name in vars(first)))


FAMILY = Family(
    name="mlp",
    title="MLP",
    description="a neural network with a head for each model, by federated averaging (Algorithm 1 of the paper)",
    router=MLPRouter,
    settings=MLPSettings,
    paper=MLPSettings(),
    learn=mlp.learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=TRAINED_WEIGHTS,
    pooled=choose_epochs(mlp.learn),
    extra="train",
    random=True,
)
