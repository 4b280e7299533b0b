"""The gradient of each row's loss, clipped and summed exactly: the sum of DP-SGD, one row more changes it by its own.

Libraries for DP-SGD compute the gradients of a batch in floating point, where BLAS picks its kernel by the number of
rows: one row more changes the last bits of every other row's activations, and weights can be crafted for which a
clipped gradient turns around with them. Here nothing in a row's gradient depends on other rows: matrix products are
:class:`~fedrouter.exact.RowProducts`, everything else is elementwise or along the row. There is no dropout, whose masks
would shift with one row more.

The gradient of a layer's weights is the product of two vectors, so its length is known without forming it, and clipped
gradients are summed as one exact matrix product of integers (:meth:`~fedrouter.federation.dp.mechanism.Part.products`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RowProducts
from fedrouter.federation.dp.mechanism import GRAIN_BITS, ROOM, Part
from fedrouter.routers.mlp import HEADS, NORM_EPSILON, PROJECTION, hidden_sizes

Parameters = Mapping[str, npt.NDArray[Any]]
"""Weights by name, in any precision."""
SHARED = "shared"
"""The layer ``(2, hidden)`` that moves all heads of a kind at once."""
SUM_BITS = 2 * GRAIN_BITS


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

    def take(self, chosen: Integers) -> Rows:
        return Rows(
            self.embeddings[chosen],
            self.model[chosen],
            self.accuracy[chosen],
            self.cost[chosen],
            self.anchored,
            None if self.frozen is None else self.frozen[chosen],
            self.distillation,
        )


@dataclass(frozen=True)
class _Layer:
    """Gradients of one layer: of row i that of the weights is the product of ``delta[i]`` and ``inputs[i]``."""

    name: str
    delta: Floats
    inputs: Floats
    has_bias: bool = True

    def take(self, chosen: Integers) -> _Layer:
        return _Layer(self.name, self.delta[chosen], self.inputs[chosen], self.has_bias)

    def squared_lengths(self) -> Floats:
        return np.asarray((self.delta**2).sum(axis=1) * self.input_squares())

    def sums(self, scale: Floats) -> dict[str, Integers]:
        """The sum over rows of the gradients times ``scale`` ``(n,)``."""
        length = np.sqrt(self.input_squares())[:, None]
        # Both factors have at most length one, whatever was clipped, so no integer overflows.
        divided = self.inputs / np.where(length > 0, length, 1.0)
        constant = self.has_bias / np.where(length > 0, length, 1.0)
        left = self.delta * (scale[:, None] * length)
        total = Part.products(left, np.concatenate([divided, constant], axis=1), 1.0, 1.0, np.inf).sums
        found = {f"{self.name}.weight": total[:, :-1]}
        return found | ({f"{self.name}.bias": total[:, -1]} if self.has_bias else {})

    def input_squares(self) -> Floats:
        return np.asarray((self.inputs**2).sum(axis=1) + self.has_bias)


@dataclass(frozen=True)
class _Norm:
    """Gradients of one LayerNorm, ``(n, hidden)`` each."""

    name: str
    weight: Floats
    bias: Floats

    def take(self, chosen: Integers) -> _Norm:
        return _Norm(self.name, self.weight[chosen], self.bias[chosen])

    def squared_lengths(self) -> Floats:
        return np.asarray((self.weight**2).sum(axis=1) + (self.bias**2).sum(axis=1))

    def sums(self, scale: Floats) -> dict[str, Integers]:
        everyone = np.zeros(len(scale), np.int64)
        return {
            f"{self.name}.{kind}": Part.of(values * scale[:, None], everyone, 1, 1.0, 1.0, np.inf).sums[0]
            << (SUM_BITS - GRAIN_BITS)
            for kind, values in (("weight", self.weight), ("bias", self.bias))
        }


def clipped_sums(weights: Parameters, rows: Rows, clip_norm: float, heads_only: bool = False) -> dict[str, Integers]:
    """The sum over rows of gradients clipped to length ``clip_norm``, by weight, in units of ``clip_norm · 2^-40``.

    ``weights`` may hold a layer :data:`SHARED`. A row moves the whole by ``2^40`` in the l2 norm at most; one whose
    gradient is not finite counts as zero.
    """
    with np.errstate(all="ignore"):
        parts = _backward(weights, rows, heads_only)
        length = np.sqrt(np.sum([part.squared_lengths() for part in parts], axis=0))
        scale = ROOM / np.maximum(length, clip_norm)
        kept = np.flatnonzero(np.isfinite(length))
    sums: dict[str, Integers] = {}
    for part in parts:
        sums |= part.take(kept).sums(scale[kept])
    return sums


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
            parts = _backward(weights, rows, heads_only)
            by_unit = {
                part.name: _carriers(np.abs(part.delta) * np.sqrt(part.input_squares())[:, None], query)
                for part in parts
                if isinstance(part, _Layer) and part.name != SHARED
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


def with_shared(weights: Parameters) -> dict[str, npt.NDArray[Any]]:
    """Weights with the layer that all heads share, which starts at zero."""
    shape = (len(HEADS), hidden_sizes(weights)[-1])
    return {**weights, f"{SHARED}.weight": np.zeros(shape), f"{SHARED}.bias": np.zeros(shape[0])}


def _backward(weights: Parameters, rows: Rows, heads_only: bool) -> list[_Layer | _Norm]:
    """Forward and backward through the network of :class:`fedrouter.routers.mlp.Network`."""
    from scipy.special import erf

    hidden = rows.embeddings.astype(np.float64)
    inputs, normed, deviations, slopes = [hidden], [], [], []
    sizes = () if PROJECTION in weights else hidden_sizes(weights)
    if PROJECTION in weights:
        hidden = _times(weights[PROJECTION].T, hidden)
        inputs.append(hidden)
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
    parts: list[_Layer | _Norm] = [_Layer(head, delta, hidden) for head, delta in zip(HEADS, deltas, strict=True)]
    if f"{SHARED}.weight" in weights:
        parts.append(_Layer(SHARED, np.stack([delta.sum(axis=1) for delta in deltas], axis=1), hidden))
    if heads_only:
        return parts
    slope: Floats = np.zeros_like(hidden)
    for part in tuple(parts):
        assert isinstance(part, _Layer)
        slope = np.asarray(slope + _times(weights[f"{part.name}.weight"], part.delta))
    for layer in range(len(sizes), 0, -1):
        slope = slope * slopes[layer - 1]
        unit = normed[layer - 1]
        parts.append(_Norm(f"norm{layer}", slope * unit, slope))
        slope = slope * weights[f"norm{layer}.weight"]
        along = (slope * unit).mean(axis=1, keepdims=True)
        slope = (slope - slope.mean(axis=1, keepdims=True) - unit * along) / deviations[layer - 1]
        parts.append(_Layer(f"layer{layer}", slope, inputs[layer - 1]))
        if layer > 1:
            slope = _times(weights[f"layer{layer}.weight"], slope)
    if PROJECTION in weights:
        parts.append(_Layer(PROJECTION.removesuffix(".weight"), slope, inputs[0], has_bias=False))
    return parts


def _output_slopes(weights: Parameters, hidden: Floats, rows: Rows) -> list[Floats]:
    """Derivatives of the loss by the outputs of the heads, ``(n, M)`` each."""
    each = np.arange(len(rows.model))
    found = []
    for index, (head, target) in enumerate(zip(HEADS, (rows.accuracy, rows.cost), strict=True)):
        output = _times(weights[f"{head}.weight"].T, hidden) + weights[f"{head}.bias"]
        if f"{SHARED}.weight" in weights:
            shared = _times(weights[f"{SHARED}.weight"].T, hidden) + weights[f"{SHARED}.bias"]
            output = output + shared[:, index : index + 1]
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
