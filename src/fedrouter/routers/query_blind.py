"""The query-blind router: per-model means, the same for every query. What is left when queries teach nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedrouter.routers.kmeans import KMeansRouter


@dataclass(frozen=True, eq=False)
class QueryBlindRouter(KMeansRouter):
    """A K-Means router with a single centre."""

    family: ClassVar[str] = "query_blind"
