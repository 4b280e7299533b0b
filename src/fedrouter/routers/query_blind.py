"""The query-blind router: per-model means, the same for every query; the fallback when embeddings carry no signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedrouter.routers.base import Cells
from fedrouter.routers.kmeans import KMeansRouter


@dataclass(frozen=True, eq=False)
class QueryBlindRouter(KMeansRouter):
    """A K-Means router with a single centre: all its training queries are one region, without cells to compare."""

    family: ClassVar[str] = "query_blind"

    def cells(self) -> Cells | None:
        return None
