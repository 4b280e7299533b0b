"""The query-blind router: per-model means, the same for every query; the fallback when embeddings carry no signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedrouter.evaluations import Embeddings
from fedrouter.routers.base import Cells
from fedrouter.routers.kmeans import KMeansRouter


@dataclass(frozen=True, eq=False)
class QueryBlindRouter(KMeansRouter):
    """A K-Means router with a single centre, which says nothing about where queries lie."""

    family: ClassVar[str] = "query_blind"

    def regions(self) -> Embeddings | None:
        return None

    def cells(self) -> Cells | None:
        return None
