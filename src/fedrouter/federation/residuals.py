"""The question whether models got worse: asked of all clients about some days, by the regions of a router."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from fedrouter.evaluations import Embeddings
from fedrouter.federation.clustering import cluster
from fedrouter.federation.federation import Federation
from fedrouter.federation.verbs.residuals import ResidualsRequest, ResidualSums
from fedrouter.routers.base import Router

REGIONS = 8
"""Most regions: each cell needs enough rows of its own, at the least different queries of each client."""


def router_regions(router: Router) -> Embeddings:
    """At most eight regions ``(K, d)`` of a router, found among its own; one of everything if it has none."""
    own = router.regions()
    if own is None:
        return np.zeros((1, router.dimension), np.float32)
    cells = router.cells()
    weights = cells.count.sum(axis=1) if cells is not None and len(cells.count) == len(own) else None
    return cluster(own, REGIONS, restarts=4, iterations=100, seed=0, weights=weights)


def residuals_request(router: Router, first: int, days: int) -> ResidualsRequest:
    """The question about ``days`` days from ``first`` on; it follows from the router alone."""
    return ResidualsRequest(router_regions(router), router.pool.names, first, days)


def ask_residuals(federation: Federation, request: ResidualsRequest) -> ResidualSums | None:
    """The total of all clients' sums; None if nobody answers."""
    replies = federation.ask("residuals", request)
    return reduce(add, replies.values()) if replies else None
