"""Checks that a server makes on replies: limits that counts and sums must keep.

Each check returns a short reason, or None; a reason never quotes a number of the reply.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrouter.evaluations import Floats

MOST_ROWS = 100_000_000
"""Maximum number of evaluations that one client may claim."""
MOST_WIDTH = 8192
"""Maximum width of embeddings: no encoder in use is wider, and the server allocates memory by it."""
MOST_DOLLARS = 1_000.0
"""Maximum mean cost of one request in dollars; a single row may cost as much as evaluations allow."""
TOO_MANY = "more rows than a client can have"
SHAPE = "shapes that do not fit the request"
COSTS = "costs beyond what is plausible"


def row_fault(count: Any) -> str | None:
    """More rows in total than a client can have."""
    # As floats: integers might overflow on the way to a sum that looks small.
    return TOO_MANY if count.astype(np.float64).sum() > MOST_ROWS else None


def dollar_fault(count: Any, cost: Floats) -> str | None:
    """A mean cost above what is plausible."""
    return COSTS if (cost > MOST_DOLLARS * count).any() else None
