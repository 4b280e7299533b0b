"""The feature map φ: from an embedding to 1 and a short vector ψ of length at most 1, from which evidence is summed.

The map belongs to the encoder, not to anybody's data: fixed orthogonal directions of the embedding, drawn once from a
seed, and, for ``static``, its statistics of shape as a block of their own. ψ that is longer than 1 is divided by its
length; blocks are scaled so that most are about that long. Centers from public texts were tried, and gained nothing at
home and less than the seeds differ under noise.

A map may have one more block, cells: which of some centers is nearest, as indicators around their mean. Cells come from
the rows at hand, so they stay where these rows are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.shape import STATISTICS
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RowProducts

DIRECTIONS: Final = 64
SEED: Final = 5
WIDEST: Final = 8192
"""The widest embeddings; no encoder in use has wider ones, and the directions are drawn as a square."""
DRAWN_AT_ONCE: Final = 256
LEAST_SCALE: Final = 1e-6
FURTHEST_CELL: Final = 1e6
BITS: Final = 16
"""ψ is rounded toward zero to multiples of 2^-16, so that its products are integers that add up exactly."""
UNIT: Final = 2.0**BITS
STATIC_WIDTH: Final = 256 + len(STATISTICS)
WORDS_SCALE, SHAPE_SCALE = 0.7, 0.5
"""What the blocks of ``static`` are divided by."""


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """φ of one encoder.

    Parameters
    ----------
    dimension : width d of the embeddings
    shape : how many of their last dimensions are a block of their own
    scales : what the embedding's block and that of shape are divided by
    cells : (K, r) centers in ψ, or none
    shares : (K,) the share of rows in each cell, which its indicator is reduced by
    """

    dimension: int
    shape: int = 0
    scales: tuple[float, float] = (1.0, 1.0)
    cells: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    shares: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= WIDEST:
            raise BadInput(f"feature map: expected embeddings of a width from 1 to {WIDEST}, got {self.dimension}")
        if not 0 <= self.shape < self.dimension:
            raise BadInput(f"feature map: expected fewer than {self.dimension} dimensions of shape, got {self.shape}")
        if not all(LEAST_SCALE <= scale < math.inf for scale in self.scales):
            raise BadInput(f"feature map: expected scales above 0, got {self.scales}")
        if len(self.cells) != len(self.shares) or (len(self.cells) and self.cells.shape[1] != self._own):
            raise BadInput("feature map: expected cells in the map's own coordinates, and the share of each")
        if not ((np.abs(self.cells) <= FURTHEST_CELL).all() and ((self.shares >= 0) & (self.shares <= 1)).all()):
            raise BadInput("feature map: expected cells of finite numbers, and shares from 0 to 1")

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
        wide = np.asarray(embeddings, np.float64)
        psi = self._rounded(self._psi(wide, self._along(wide[:, : len(self._directions)])))
        units = np.full((len(psi), self.width), int(UNIT), np.int64)
        units[:, 1 : 1 + psi.shape[1]] = psi
        if len(self.cells):
            units[:, 1 + psi.shape[1] :] = self._indicators(self._nearest(psi / UNIT))
        return units

    def features(self, embeddings: Embeddings) -> Floats:
        """φ ``(n, r + 1)`` by ordinary floating-point products: for estimates, which enter no sums."""
        wide = np.asarray(embeddings, np.float64)
        psi = self._psi(wide, wide[:, : len(self._directions)] @ self._directions)
        found = np.ones((len(psi), self.width))
        found[:, 1 : 1 + psi.shape[1]] = psi
        if len(self.cells):
            nearest = (self._half_squares - psi @ self.cells.T).argmin(axis=1)
            found[:, 1 + psi.shape[1] :] = self._indicators(nearest) / UNIT
        return found

    def embeddings(self, psi: Floats) -> Floats:
        """Embeddings ``(n, d)`` that have these features ψ ``(n, r)``, cells apart: the shortest of them."""
        words, shape = np.split(psi, [self._own - self.shape], axis=1)
        return np.concatenate([words * self.scales[0] @ self._directions.T, shape * self.scales[1]], axis=1)

    def with_cells(self, cells: Floats, shares: Floats) -> FeatureMap:
        """This map with cells around centers ``(K, r)`` in ψ, of which each has this share ``(K,)`` of the rows."""
        return replace(self, cells=np.ascontiguousarray(cells), shares=np.ascontiguousarray(shares))

    def without_cells(self) -> FeatureMap:
        return replace(self, cells=np.zeros((0, 0)), shares=np.zeros(0)) if len(self.cells) else self

    @cached_property
    def digest(self) -> str:
        """Equal for maps that give every query the same features."""
        numbers = (np.array(self.scales), self._directions, self.cells, self.shares)
        content = hashlib.sha256(repr((self.dimension, self.shape, self.cells.shape)).encode())
        for array in numbers:
            content.update(np.ascontiguousarray(array, np.float64).tobytes())
        return f"sha256:{content.hexdigest()}"

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that the map is made of, the directions apart, which follow from the seed."""
        return {
            "widths": np.array([self.dimension, self.shape], np.int64),
            "scales": np.array(self.scales),
            "cells": self.cells,
            "shares": self.shares,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> FeatureMap:
        """The map that :meth:`arrays` came from."""
        try:
            dimension, shape = (int(value) for value in arrays["widths"])
            words, forms = (float(value) for value in arrays["scales"])
            cells, shares = (np.asarray(arrays[name], np.float64) for name in ("cells", "shares"))
            return cls(dimension, shape, (words, forms), cells, shares)
        except (KeyError, TypeError, ValueError):
            raise BadInput("feature map: expected arrays widths, scales, cells and shares") from None

    @property
    def _own(self) -> int:
        """Length of ψ without cells."""
        return min(DIRECTIONS, self.dimension - self.shape) + self.shape

    def _psi(self, embeddings: Floats, words: Floats) -> Floats:
        """ψ of the first two blocks before rounding, given the coordinates of the words."""
        psi = words / self.scales[0]
        if self.shape:
            psi = np.concatenate([psi, embeddings[:, -self.shape :] / self.scales[1]], axis=1)
        return np.asarray(psi / np.maximum(np.sqrt((psi * psi).sum(axis=1, keepdims=True)), 1.0))

    def _rounded(self, psi: Floats) -> Integers:
        return np.trunc(psi * UNIT).astype(np.int64)

    def _nearest(self, psi: Floats) -> Integers:
        return np.asarray((self._half_squares - self._to_cells(psi)).argmin(axis=1))

    def _indicators(self, nearest: Integers) -> Integers:
        return self._rounded(np.eye(len(self.cells))[nearest] - self.shares)

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
    rng = np.random.default_rng(SEED)
    # A square of normal numbers, of which the first columns alone decide: some rows at a time.
    rows = [min(DRAWN_AT_ONCE, dimension - start) for start in range(0, dimension, DRAWN_AT_ONCE)]
    drawn = np.concatenate([rng.normal(size=(some, dimension))[:, :DIRECTIONS].copy() for some in rows])
    orthogonal = np.linalg.qr(drawn)[0]
    orthogonal = np.rint(orthogonal * 2.0**30) / 2.0**30
    orthogonal.flags.writeable = False
    return orthogonal


@cache
def map_of_width(dimension: int) -> FeatureMap:
    """The map of the encoder that makes embeddings of this width; no other encoder in use has that of ``static``."""
    if dimension == STATIC_WIDTH:
        return FeatureMap(dimension, len(STATISTICS), (WORDS_SCALE, SHAPE_SCALE))
    # 64 of d coordinates of a vector of length one have about this length.
    return FeatureMap(dimension, scales=(math.sqrt(min(1.0, DIRECTIONS / dimension)), 1.0))
