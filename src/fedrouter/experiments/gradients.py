"""The gradient norm of the federation's loss, round by round: the quantity that the convergence theorem bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families import mlp
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.federation import Progress
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import sweep
from fedrouter.routers.mlp import HEADS, NORM_EPSILON, MLPRouter, hidden_sizes


def loss_and_gradient(router: MLPRouter, rows: Evaluations) -> tuple[float, float]:
    """The loss of equation "fed_objective" over these rows, and the squared norm of its gradient by all weights.

    The loss is the mean over rows of the squared error of accuracy plus that of normalized cost, without dropout.
    """
    import torch
    from torch.nn import functional

    weights = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in router.weights.items()}
    hidden = torch.from_numpy(rows.embeddings.copy())
    for layer, size in enumerate(hidden_sizes(router.weights), start=1):
        hidden = functional.linear(hidden, weights[f"layer{layer}.weight"], weights[f"layer{layer}.bias"])
        norm = (weights[f"norm{layer}.weight"], weights[f"norm{layer}.bias"])
        hidden = functional.gelu(functional.layer_norm(hidden, (size,), *norm, eps=NORM_EPSILON))
    cell = (torch.from_numpy(rows.query.copy()), torch.from_numpy(rows.model.copy()))
    logits, cost = (functional.linear(hidden, weights[f"{h}.weight"], weights[f"{h}.bias"])[cell] for h in HEADS)
    accurate = torch.from_numpy(rows.accuracy.copy())
    spent = torch.from_numpy(router.scale.normalised(rows.cost, rows.model))
    loss = ((logits.sigmoid() - accurate) ** 2 + (cost - spent) ** 2).mean()
    gradient = torch.autograd.grad(loss, list(weights.values()))
    return float(loss.detach()), float(sum((part.double() ** 2).sum() for part in gradient))


def follow(
    logs: Mapping[str, Evaluations],
    settings: MLPSettings,
    seed: int,
    rows: Evaluations,
    test: Evaluations,
    swept: Collection[int],
    watch: Callable[[int], None],
) -> list[dict[str, float]]:
    """Loss and gradient norm on ``rows`` after each round, and after the rounds ``swept`` the areas on ``test``.

    Areas are those of the router that training would give if the round were the last.
    """
    federation = LocalFederation(Client(name, log, OPEN) for name, log in logs.items())
    truth = test.grid()
    history = []

    def measure(progress: Progress) -> None:
        router = progress.router
        assert isinstance(router, MLPRouter)
        loss, gradient = loss_and_gradient(router, rows)
        history.append({"loss": loss, "gradient": gradient})
        if progress.step in swept:
            scale = mlp.ask_cost_correction(federation, router.pool, router.weights, router.scale)
            measures = sweep(replace(router, scale=scale).estimate(test.embeddings), truth).measures
            history[-1] |= {"auc": measures.auc, "aiq": measures.aiq}
        watch(progress.step)

    mlp.learn(federation, test.pool, settings, seed, measure)
    return history
