"""The feature map φ: from an embedding to 1 and a short vector ψ of length at most 1, from which evidence is summed.

The map belongs to the encoder, not to anybody's data: fixed orthogonal directions of the embedding, drawn once from a
seed, and, for ``static``, its statistics of shape as a block of their own. Center, scale of each block and the length
at which ψ is clipped are constants of the encoder (``feature_maps.json``, made from public texts by
``scripts/make_feature_maps.py``); an encoder without constants has center 0 and scale 1.

A map may have one more block, cells: which of some centers is nearest, as indicators around their mean. Cells come from
the rows at hand, so they stay where these rows are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.identity import STATIC, EncoderIdentity
from fedrouter.encoders.shape import STATISTICS
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RowProducts

DIRECTIONS: Final = 64
SEED: Final = 5
BITS: Final = 16
"""ψ is rounded toward zero to multiples of 2^-16, so that its products are integers that add up exactly."""
UNIT: Final = 2.0**BITS
CONSTANTS: Final = Path(__file__).with_name("feature_maps.json")


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """φ of one encoder.

    Parameters
    ----------
    dimension : width d of the embeddings
    shape : how many of their last dimensions are a block of their own
    center : (d,) subtracted from an embedding
    scales : what the words' and the shape's block are divided by
    clip : the length from which on ψ is divided by its length
    cells : (K, r) centers in ψ, or none
    shares : (K,) the share of rows in each cell, which its indicator is reduced by
    """

    dimension: int
    shape: int = 0
    center: Floats = field(default_factory=lambda: np.zeros(0))
    scales: tuple[float, float] = (1.0, 1.0)
    clip: float = 1.0
    cells: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    shares: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not 0 <= self.shape < self.dimension:
            raise BadInput(f"feature map: expected fewer than {self.dimension} dimensions of shape, got {self.shape}")
        if len(self.center) == 0:
            object.__setattr__(self, "center", np.zeros(self.dimension))
        if self.center.shape != (self.dimension,) or not np.isfinite(self.center).all():
            raise BadInput(f"feature map: expected a center of {self.dimension} finite numbers")
        if not (all(scale > 0 for scale in self.scales) and self.clip >= 1):
            raise BadInput("feature map: expected scales above 0 and a clip length of at least 1")
        if len(self.cells) != len(self.shares) or (len(self.cells) and self.cells.shape[1] != self._own):
            raise BadInput("feature map: expected cells in the map's own coordinates, and the share of each")

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many features each block has, the constant 1 apart."""
        return tuple(size for size in (self._own - self.shape, self.shape, len(self.cells)) if size)

    @property
    def width(self) -> int:
        """r + 1: the number of features, the constant included."""
        return 1 + sum(self.blocks)

    def __call__(self, embeddings: Embeddings) -> Integers:
        """φ of queries ``(n, d)`` in units of 2^-16, ``(n, r + 1)`` int64; the first column is the constant.

        A query's features do not depend on which others there are, not even in the last bit: they enter sums.
        """
        psi = self._rounded(self._psi(embeddings, self._words(self._centered(embeddings))))
        units = np.full((len(psi), self.width), int(UNIT), np.int64)
        units[:, 1 : 1 + psi.shape[1]] = psi
        if len(self.cells):
            units[:, 1 + psi.shape[1] :] = self._indicators(self._nearest(psi / UNIT))
        return units

    def features(self, embeddings: Embeddings) -> Floats:
        """φ ``(n, r + 1)`` by ordinary floating-point products: for estimates, which enter no sums."""
        centered = self._centered(embeddings)
        psi = self._psi(embeddings, centered[:, : len(self._directions)] @ self._directions)
        found = np.ones((len(psi), self.width))
        found[:, 1 : 1 + psi.shape[1]] = psi
        if len(self.cells):
            nearest = (self._half_squares - psi @ self.cells.T).argmin(axis=1)
            found[:, 1 + psi.shape[1] :] = self._indicators(nearest) / UNIT
        return found

    def with_cells(self, cells: Floats, shares: Floats) -> FeatureMap:
        """This map with cells around centers ``(K, r)`` in ψ, of which each has this share ``(K,)`` of the rows."""
        return replace(self, cells=np.ascontiguousarray(cells), shares=np.ascontiguousarray(shares))

    def without_cells(self) -> FeatureMap:
        return replace(self, cells=np.zeros((0, 0)), shares=np.zeros(0)) if len(self.cells) else self

    @cached_property
    def digest(self) -> str:
        """Equal for maps that give every query the same features."""
        numbers = (np.array([*self.scales, self.clip]), self.center, self._directions, self.cells, self.shares)
        content = hashlib.sha256(repr((self.dimension, self.shape, self.cells.shape)).encode())
        for array in numbers:
            content.update(np.ascontiguousarray(array, np.float64).tobytes())
        return f"sha256:{content.hexdigest()}"

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that the map is made of, the directions apart, which follow from the seed."""
        return {
            "center": self.center,
            "scales": np.array([*self.scales, self.clip]),
            "shape": np.array([self.shape], np.int64),
            "cells": self.cells,
            "shares": self.shares,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> FeatureMap:
        """The map that :meth:`arrays` came from."""
        try:
            center = np.asarray(arrays["center"], np.float64)
            words, shape, clip = (float(value) for value in arrays["scales"])
            (size,) = (int(value) for value in arrays["shape"])
            cells, shares = (np.asarray(arrays[name], np.float64) for name in ("cells", "shares"))
            return cls(len(center), size, center, (words, shape), clip, cells, shares)
        except (KeyError, TypeError, ValueError):
            raise BadInput("feature map: expected arrays center, scales, shape, cells and shares") from None

    @property
    def _own(self) -> int:
        """Length of ψ without cells."""
        return min(DIRECTIONS, self.dimension - self.shape) + self.shape

    def _centered(self, embeddings: Embeddings) -> Floats:
        return np.asarray(embeddings - self.center, np.float64)

    def _psi(self, embeddings: Embeddings, words: Floats) -> Floats:
        """ψ of the first two blocks before rounding, given the coordinates of the words."""
        psi = words / self.scales[0]
        if self.shape:
            shape = embeddings[:, -self.shape :] - self.center[-self.shape :]
            psi = np.concatenate([psi, shape / self.scales[1]], axis=1)
        return psi / np.maximum(np.sqrt((psi * psi).sum(axis=1, keepdims=True)), self.clip)

    def _rounded(self, psi: Floats) -> Integers:
        return np.trunc(psi * UNIT).astype(np.int64)

    def _nearest(self, psi: Floats) -> Integers:
        return np.asarray((self._half_squares - self._to_cells(psi)).argmin(axis=1))

    def _indicators(self, nearest: Integers) -> Integers:
        return self._rounded(np.eye(len(self.cells))[nearest] - self.shares)

    def _words(self, centered: Floats) -> Floats:
        return self._along(centered[:, : len(self._directions)])

    @cached_property
    def _directions(self) -> Floats:
        return directions(self.dimension - self.shape)

    @cached_property
    def _along(self) -> RowProducts:
        return RowProducts(self._directions, precise=False)

    @cached_property
    def _to_cells(self) -> RowProducts:
        return RowProducts(self.cells.T, precise=False)

    @cached_property
    def _half_squares(self) -> Floats:
        return np.asarray((self.cells**2).sum(axis=1) / 2)


@cache
def directions(dimension: int) -> Floats:
    """Orthogonal directions ``(d, 64)``, or all ``d`` if there are fewer; the same on every machine.

    Rounded to multiples of 2^-30, because linear algebra differs in the last bit between CPUs.
    """
    drawn = np.random.default_rng(SEED).normal(size=(dimension, dimension))
    orthogonal = np.linalg.qr(drawn)[0][:, :DIRECTIONS]
    orthogonal = np.rint(orthogonal * 2.0**30) / 2.0**30
    orthogonal.flags.writeable = False
    return orthogonal


def feature_map(encoder: EncoderIdentity, without: str = "") -> FeatureMap:
    """The map of an encoder; ``without`` names a public data set that the constants must not come from."""
    shape = len(STATISTICS) if encoder.name == STATIC else 0
    entry = _constants().get(encoder.name)
    if entry is None or entry["dimension"] != encoder.dimension:
        return FeatureMap(encoder.dimension, shape if shape < encoder.dimension else 0)
    if without:
        entry = {**entry, **entry["without"].get(without, {})}
    return FeatureMap(encoder.dimension, shape, np.array(entry["center"]), tuple(entry["scales"]), entry["clip"])


@cache
def _constants() -> Mapping[str, Any]:
    return dict(json.loads(CONSTANTS.read_text())) if CONSTANTS.exists() else {}
