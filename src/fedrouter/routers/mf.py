"""The matrix-factorization router: a linear projection of the query times a vector for each model.

As in EmbedLLM, with a second vector for each model that predicts its cost. It is the MLP router with a linear trunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedrouter.routers.mlp import MLPRouter


@dataclass(frozen=True, eq=False)
class MFRouter(MLPRouter):
    """``projection.weight`` ``(factors, d)``, and per model a vector and a bias for accuracy and for cost."""

    family: ClassVar[str] = "mf"
