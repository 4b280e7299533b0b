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
MOST_NAME = 128
"""Maximum number of characters in the name of a client, an encoder or a model."""
MOST_MODELS = 256
"""Maximum number of models that a client may name: sums of products grow with it."""
MOST_DOLLARS = 1_000.0
"""Maximum mean cost of one request in dollars; a single row may cost as much as evaluations allow."""
TOO_MANY = "more rows than a client can have"
SHAPE = "shapes that do not fit the request"
SPREAD = "counts, sums and squares that no values have"
COSTS = "costs beyond what is plausible"


def whole_number(number: object, least: int, most: int) -> bool:
    """Whether this is an int within limits; JSON may have brought anything."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def fits_name(name: object) -> bool:
    """Whether this is a name that can be stored, printed and compared: printable text of limited length.

    No control characters, no lone surrogates, no invisible marks, no space at either end.
    """
    return isinstance(name, str) and 0 < len(name) <= MOST_NAME and name.isprintable() and name == name.strip()


def row_fault(count: Any) -> str | None:
    """More rows in total than a client can have."""
    # As floats: integers might overflow on the way to a sum that looks small.
    return TOO_MANY if count.astype(np.float64).sum() > MOST_ROWS else None


def dollar_fault(count: Any, cost: Floats) -> str | None:
    """A mean cost above what is plausible."""
    return COSTS if (cost > MOST_DOLLARS * count).any() else None
