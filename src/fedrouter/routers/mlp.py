"""The MLP router at inference time: a shared trunk and two linear heads per model, as plain arrays in numpy.

Paper, section "Federated MLP-Router": trunk 512-512 with LayerNorm and GELU, an accuracy-logit head and a cost head.
Training is in :mod:`fedrouter.federation.families.mlp`; serving needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedrouter.baselines import UNSEEN
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RowProducts
from fedrouter.normal import normal_cdf
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Router, fit_shapes

Weights = Mapping[str, npt.NDArray[np.float32]]
"""Named like a torch state: ``layer1.weight`` (out, in), ``norm1.weight``, ``accuracy.weight`` (M, hidden), …"""

HEADS = ("accuracy", "cost")
NORM_EPSILON = 1e-5
LEAST_DEVIATION = 1e-12
"""A deviation of zero dollars counts as this."""
LEAST_SHARE = 0.02
"""A predicted cost is at least this share of the model's mean."""


@dataclass(frozen=True)
class CostScale:
    """How each model's cost is normalized, ``(M,)`` each: ``dollars = mean + deviation · output``.

    ``count`` is the number of evaluations of each model.
    """

    count: Integers
    mean: Floats
    deviation: Floats

    def normalised(self, cost: Floats, model: Integers) -> Floats:
        """Targets of the cost head for evaluations of these models; ``(n,)``."""
        return np.asarray((cost - self.mean[model]) / np.maximum(self.deviation, LEAST_DEVIATION)[model])

    def dollars(self, output: npt.NDArray[np.floating]) -> Floats:
        """US dollars for cost-head outputs ``(n, M)``."""
        return np.maximum(self.mean + self.deviation * output.astype(np.float64), LEAST_SHARE * self.mean)

    def beside(self, other: CostScale) -> CostScale:
        """The scales of both: these models, then the other's."""
        return CostScale(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in vars(self)))


def weight_shapes(dimension: int, hidden: tuple[int, ...], models: int) -> dict[str, tuple[int, ...]]:
    """Shapes of all weights of the network by name, in the order of computation."""
    shapes: dict[str, tuple[int, ...]] = {}
    width = dimension
    for layer, size in enumerate(hidden, start=1):
        shapes |= {f"layer{layer}.weight": (size, width), f"layer{layer}.bias": (size,)}
        shapes |= {f"norm{layer}.weight": (size,), f"norm{layer}.bias": (size,)}
        width = size
    return shapes | head_shapes(models, width)


def head_shapes(models: int, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of all heads by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for head in HEADS:
        shapes |= {f"{head}.weight": (models, width), f"{head}.bias": (models,)}
    return shapes


def initial_weights(
    dimension: int, hidden: tuple[int, ...], models: int, seed: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Random weights: uniform in ±1/√fan-in for linear layers, the identity for norms. Drawn without torch."""
    draw = np.random.default_rng(seed)
    weights: dict[str, npt.NDArray[np.float32]] = {}
    fan_in = 1
    for name, shape in weight_shapes(dimension, hidden, models).items():
        if name.startswith("norm"):
            weights[name] = np.full(shape, name.endswith("weight"), np.float32)
            continue
        fan_in = shape[1] if len(shape) == 2 else fan_in
        weights[name] = draw.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(fan_in))
    return weights


def first_layer(weights: Weights) -> npt.NDArray[np.float32]:
    """The weight that is applied to the embedding, ``(hidden, dimension)``."""
    return weights["layer1.weight"]


def hidden_sizes(weights: Weights) -> tuple[int, ...]:
    """Widths of the trunk's layers, from its weights."""
    sizes: list[int] = []
    while f"layer{len(sizes) + 1}.weight" in weights:
        sizes.append(len(weights[f"layer{len(sizes) + 1}.weight"]))
    return tuple(sizes)


class Network:
    """The network ready to be applied: its outputs for one query do not depend on which others are asked with it."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        # As accurate as the float32 weights are.
        self._products = {
            name: RowProducts(array.T, precise=False) for name, array in weights.items() if array.ndim == 2
        }

    def __call__(self, embeddings: Embeddings) -> tuple[Floats, Floats]:
        """Accuracy logits and normalized costs, each ``(n, M)``."""
        weights = self._weights
        hidden: npt.NDArray[Any] = embeddings
        for layer in range(1, len(hidden_sizes(weights)) + 1):
            hidden = self._products[f"layer{layer}.weight"](hidden) + weights[f"layer{layer}.bias"]
            hidden = hidden - hidden.mean(axis=1, keepdims=True)
            hidden = hidden / np.sqrt((hidden**2).mean(axis=1, keepdims=True) + NORM_EPSILON)
            hidden = hidden * weights[f"norm{layer}.weight"] + weights[f"norm{layer}.bias"]
            hidden = hidden * normal_cdf(hidden)  # GELU
        accuracy, cost = (self._products[f"{head}.weight"](hidden) + weights[f"{head}.bias"] for head in HEADS)
        return accuracy, cost


def forward(weights: Weights, embeddings: Embeddings) -> tuple[Floats, Floats]:
    """Accuracy logits and normalized costs, each ``(n, M)``."""
    return Network(weights)(embeddings)


def outputs(weights: Weights, embeddings: Embeddings) -> Floats:
    """Predicted accuracy and normalized cost, ``(n, 2, M)``."""
    logits, cost = forward(weights, embeddings)
    with np.errstate(over="ignore"):
        return np.stack([1 / (1 + np.exp(-logits)), cost], axis=1)


@dataclass(frozen=True, eq=False)
class MLPRouter(Router):
    """Weights of the network and the scale that turns its cost outputs into dollars."""

    family: ClassVar[str] = "mlp"
    pool: ModelPool
    weights: Weights
    scale: CostScale

    @property
    def dimension(self) -> int:
        return int(first_layer(self.weights).shape[1])

    @cached_property
    def _network(self) -> Network:
        return Network(self.weights)

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        logits, outputs = self._network(embeddings)
        seen = self.scale.count > 0
        with np.errstate(over="ignore"):
            accuracy = np.where(seen, 1 / (1 + np.exp(-logits)), np.nan)
        # A network has no uncertainty of its own; this is the least that the number of rows allows.
        return Estimates(
            self.pool,
            accuracy,
            np.where(seen, self.scale.dollars(outputs), np.nan),
            tuple(None if known else UNSEEN for known in seen),
            lambda: np.sqrt(accuracy * (1 - accuracy) / np.maximum(self.scale.count, 1)),
        )

    def rows_by_model(self) -> Integers | None:
        return self.scale.count

    def arrays(self) -> Arrays:
        scale = {f"scale.{name}": getattr(self.scale, name) for name in CostScale.__dataclass_fields__}
        return {**self.weights, **scale}

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        weights = {
            name: np.asarray(array, np.float32) for name, array in arrays.items() if not name.startswith("scale.")
        }
        if "layer1.weight" not in weights or first_layer(weights).ndim != 2:
            raise BadInput(f"{cls.family} router: expected a first layer of shape (hidden, dimension)")
        shapes = weight_shapes(first_layer(weights).shape[1], hidden_sizes(weights), len(pool))
        scale_names = [f"scale.{name}" for name in CostScale.__dataclass_fields__]
        fit_shapes(cls.family, arrays, shapes | dict.fromkeys(scale_names, (len(pool),)))
        count, mean, deviation = (np.asarray(arrays[name]) for name in scale_names)
        return cls(pool, weights, CostScale(count.astype(np.int64), mean, deviation))
