"""How many queries carry a step of training, from the gradient of each row's loss, computed for itself.

Weights can be made for which one query alone has a gradient; what comes back would be that query. The gradient of a
layer's weights is the product of two vectors, so its length is known without forming it. Nothing in a row's gradient
depends on other rows: matrix products are :class:`~fedrouter.exact.RowProducts`, everything else is elementwise or
along the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RowProducts
from fedrouter.routers.mlp import HEADS, NORM_EPSILON, hidden_sizes

Parameters = Mapping[str, npt.NDArray[Any]]
"""Weights by name, in any precision."""


@dataclass(frozen=True)
class Rows:
    """Rows to train on: embeddings ``(n, d)``; model, accuracy and normalized cost ``(n,)``.

    With ``frozen`` ``(n, 2, A)`` the loss also has ``distillation`` times the mean squared distance of accuracy and
    cost from it, over the models ``anchored`` ``(A,)``.
    """

    embeddings: Embeddings
    model: Integers
    accuracy: Floats
    cost: Floats
    anchored: Integers
    frozen: Floats | None = None
    distillation: float = 0.0


@dataclass(frozen=True)
class Layer:
    """Gradients of one layer: of row i that of the weights is the product of ``delta[i]`` and ``inputs[i]``."""

    name: str
    delta: Floats
    inputs: Floats

    def squared_lengths(self) -> Floats:
        return np.asarray((self.delta**2).sum(axis=1) * self.input_squares())

    def input_squares(self) -> Floats:
        return np.asarray((self.inputs**2).sum(axis=1) + 1)  # of the bias


@dataclass(frozen=True)
class _Norm:
    """Gradients of one LayerNorm, ``(n, hidden)`` each."""

    name: str
    weight: Floats
    bias: Floats

    def squared_lengths(self) -> Floats:
        return np.asarray((self.weight**2).sum(axis=1) + (self.bias**2).sum(axis=1))


@dataclass(frozen=True)
class Carriers:
    """About how many queries carry a gradient: of the network, of each model's heads ``(M,)``, of each hidden unit.

    One over the largest share that a single query has of the sum of the lengths of the rows' gradients; infinite where
    nothing moves. A row whose gradient is not finite has all of it.
    """

    whole: float
    heads: Floats
    units: Floats

    @classmethod
    def of(cls, weights: Parameters, rows: Rows, query: Integers, heads_only: bool = False) -> Carriers:
        """Those of the rows, given the ``query`` ``(n,)`` of each."""
        with np.errstate(all="ignore"):
            parts = backward(weights, rows, heads_only)
            by_unit = {
                part.name: _carriers(np.abs(part.delta) * np.sqrt(part.input_squares())[:, None], query)
                for part in parts
                if isinstance(part, Layer)
            }
            length = np.sqrt(np.sum([part.squared_lengths() for part in parts], axis=0))
        heads = np.minimum(*(by_unit.pop(head) for head in HEADS))
        units = np.concatenate([*by_unit.values(), np.zeros(0)])
        return cls(float(_carriers(length[:, None], query)[0]), heads, units)


def _carriers(length: Floats, query: Integers) -> Floats:
    """One over the largest share of a query in each column ``(k,)`` of lengths ``(n, k)``."""
    length = np.nan_to_num(length, nan=1e300, posinf=1e300)
    shares = np.zeros((query.max(initial=-1) + 1, length.shape[1]))
    np.add.at(shares, query, length / np.maximum(length.max(axis=0, initial=0.0), 1e-300))
    largest = shares.max(axis=0, initial=0.0)
    return np.where(largest > 0, shares.sum(axis=0) / np.where(largest > 0, largest, 1.0), np.inf)


def backward(weights: Parameters, rows: Rows, heads_only: bool) -> list[Layer | _Norm]:
    """Forward and backward through the network of :class:`fedrouter.routers.mlp.Network`."""
    from scipy.special import erf

    hidden = rows.embeddings.astype(np.float64)
    inputs, normed, deviations, slopes = [hidden], [], [], []
    sizes = hidden_sizes(weights)
    for layer in range(1, len(sizes) + 1):
        hidden = _times(weights[f"layer{layer}.weight"].T, hidden) + weights[f"layer{layer}.bias"]
        hidden = hidden - hidden.mean(axis=1, keepdims=True)
        deviations.append(np.sqrt((hidden**2).mean(axis=1, keepdims=True) + NORM_EPSILON))
        normed.append(hidden / deviations[-1])
        before = normed[-1] * weights[f"norm{layer}.weight"] + weights[f"norm{layer}.bias"]
        share = 0.5 * (1 + erf(before / np.sqrt(2)))  # GELU is before · share
        slopes.append(share + before * np.exp(-(before**2) / 2) / np.sqrt(2 * np.pi))
        hidden = before * share
        inputs.append(hidden)
    deltas = _output_slopes(weights, hidden, rows)
    parts: list[Layer | _Norm] = [Layer(head, delta, hidden) for head, delta in zip(HEADS, deltas, strict=True)]
    if heads_only:
        return parts
    slope: Floats = np.zeros_like(hidden)
    for part in tuple(parts):
        assert isinstance(part, Layer)
        slope = np.asarray(slope + _times(weights[f"{part.name}.weight"], part.delta))
    for layer in range(len(sizes), 0, -1):
        slope = slope * slopes[layer - 1]
        unit = normed[layer - 1]
        parts.append(_Norm(f"norm{layer}", slope * unit, slope))
        slope = slope * weights[f"norm{layer}.weight"]
        along = (slope * unit).mean(axis=1, keepdims=True)
        slope = (slope - slope.mean(axis=1, keepdims=True) - unit * along) / deviations[layer - 1]
        parts.append(Layer(f"layer{layer}", slope, inputs[layer - 1]))
        if layer > 1:
            slope = _times(weights[f"layer{layer}.weight"], slope)
    return parts


def _output_slopes(weights: Parameters, hidden: Floats, rows: Rows) -> list[Floats]:
    """Derivatives of the loss by the outputs of the heads, ``(n, M)`` each."""
    each = np.arange(len(rows.model))
    found = []
    for index, (head, target) in enumerate(zip(HEADS, (rows.accuracy, rows.cost), strict=True)):
        output = _times(weights[f"{head}.weight"].T, hidden) + weights[f"{head}.bias"]
        rate = np.ones_like(output)
        if head == "accuracy":
            output = 1 / (1 + np.exp(-output))
            rate = output * (1 - output)
        slope = np.zeros_like(output)
        slope[each, rows.model] = 2 * (output[each, rows.model] - target)
        if rows.frozen is not None and len(rows.anchored):
            away = output[:, rows.anchored] - rows.frozen[:, index]
            slope[:, rows.anchored] += 2 * rows.distillation / len(rows.anchored) * away
        found.append(slope * rate)
    return found


def _times(matrix: npt.NDArray[Any], rows: Floats) -> Floats:
    return RowProducts(matrix, precise=False)(rows)
