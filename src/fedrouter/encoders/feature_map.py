"""The feature map φ: from an embedding to 1 and a short vector ψ of length at most 1, from which evidence is summed.

The map belongs to the encoder, not to anybody's data: fixed orthogonal directions of the embedding, drawn once from a
seed, and, for ``static``, its statistics of shape as a block of their own. ψ that is longer than 1 is divided by its
length; blocks are scaled so that most are about that long. Centers from public texts were tried, and gained nothing at
home and less than the seeds differ under noise.

A map may have one more block, the cells of the rows at hand (:mod:`fedrouter.encoders.cells`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.cells import Cells
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
CELLS: Final = "cells."
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
    cells : those of the rows at hand, or none
    """

    dimension: int
    shape: int = 0
    scales: tuple[float, float] = (1.0, 1.0)
    cells: Cells | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= WIDEST:
            raise BadInput(f"feature map: expected embeddings of a width from 1 to {WIDEST}, got {self.dimension}")
        if not 0 <= self.shape < self.dimension:
            raise BadInput(f"feature map: expected fewer than {self.dimension} dimensions of shape, got {self.shape}")
        if not all(LEAST_SCALE <= scale < math.inf for scale in self.scales):
            raise BadInput(f"feature map: expected scales above 0, got {self.scales}")
        if self.cells is not None and self.cells.centers.shape[1] != self.dimension:
            raise BadInput("feature map: expected cells of embeddings of the same width")

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many features each block has, the constant 1 apart."""
        return tuple(size for size in (self._own - self.shape, self.shape, len(self.cells or ())) if size)

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
        if self.cells is not None:
            units[:, 1 + psi.shape[1] :] = self._rounded(self.cells.exactly(wide))
        return units

    def features(self, embeddings: Embeddings) -> Floats:
        """φ ``(n, r + 1)`` by ordinary floating-point products: for estimates, which enter no sums."""
        wide = np.asarray(embeddings, np.float64)
        psi = self._psi(wide, wide[:, : len(self._directions)] @ self._directions)
        found = np.ones((len(psi), self.width))
        found[:, 1 : 1 + psi.shape[1]] = psi
        if self.cells is not None:
            found[:, 1 + psi.shape[1] :] = self.cells(wide)
        return found

    def embeddings(self, psi: Floats) -> Floats:
        """Embeddings ``(n, d)`` that have these features ψ ``(n, r)``, cells apart: the shortest of them."""
        words, shape = np.split(psi, [self._own - self.shape], axis=1)
        return np.concatenate([words * self.scales[0] @ self._directions.T, shape * self.scales[1]], axis=1)

    def without_cells(self) -> FeatureMap:
        return self if self.cells is None else replace(self, cells=None)

    @cached_property
    def digest(self) -> str:
        """Equal for maps that give every query the same features."""
        content = hashlib.sha256(repr((self.dimension, self.shape)).encode())
        for array in (self._directions, *self.arrays().values()):
            content.update(repr(array.shape).encode() + np.ascontiguousarray(array, np.float64).tobytes())
        return f"sha256:{content.hexdigest()}"

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that the map is made of, the directions apart, which follow from the seed."""
        widths, scales = np.array([self.dimension, self.shape], np.int64), np.array(self.scales)
        cells = {} if self.cells is None else self.cells.arrays()
        return {"widths": widths, "scales": scales} | {f"{CELLS}{name}": array for name, array in cells.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> FeatureMap:
        """The map that :meth:`arrays` came from."""
        try:
            dimension, shape = (int(value) for value in arrays["widths"])
            words, forms = (float(value) for value in arrays["scales"])
        except (KeyError, TypeError, ValueError):
            raise BadInput("feature map: expected arrays widths and scales") from None
        found = {name.removeprefix(CELLS): array for name, array in arrays.items() if name.startswith(CELLS)}
        return cls(dimension, shape, (words, forms), Cells.from_arrays(found) if found else None)

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

    @cached_property
    def _directions(self) -> Floats:
        return directions(self.dimension - self.shape)

    @cached_property
    def _along(self) -> RowProducts:
        return RowProducts(self._directions, precise=False)


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
