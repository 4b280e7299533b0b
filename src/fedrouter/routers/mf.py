"""The matrix-factorization router: a linear projection of the query times a vector for each model.

As in EmbedLLM, with a second vector for each model that predicts its cost. It is the MLP router with a linear trunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedrouter.routers.mlp import MLPRouter


def initial_projection(dimension: int, factors: int, seed: int) -> npt.NDArray[np.float32]:
    """A random projection ``(factors, dimension)`` that gives a query of length one a length of about one."""
    draw = np.random.default_rng(seed)
    return draw.normal(0, factors**-0.5, (factors, dimension)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class MFRouter(MLPRouter):
    """``projection.weight`` ``(factors, d)``, and per model a vector and a bias for accuracy and for cost."""

    family: ClassVar[str] = "mf"
