"""Caps on a client's weight: no client counts for more than a multiple of the rows of the median client.

Counts and sums are scaled down together, so a client's means stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import ExactSums

Replies = Mapping[str, Any]


def capped(
    replies: Replies, rows: Callable[[Any], float], scale: Callable[[Any, float], Any], most_rows: float
) -> Replies:
    """Replies in which each client with more than ``most_rows`` times the median client's rows is scaled down."""
    size = {name: float(rows(reply)) for name, reply in replies.items()}
    present = [value for value in size.values() if value > 0]
    most = most_rows * float(np.median(present)) if present else 0.0
    return {name: reply if size[name] <= most else scale(reply, most / size[name]) for name, reply in replies.items()}


def replaced(sums: ExactSums, totals: Floats) -> ExactSums:
    """Exact sums of these totals; where the sums have these totals already, they keep every bit."""
    same = sums.totals() == totals
    return ExactSums(np.where(same[..., None], sums.limbs, ExactSums.from_totals(totals).limbs))


def scaled(sums: ExactSums, factor: Floats) -> ExactSums:
    """Exact sums multiplied by a factor of the same shape."""
    return replaced(sums, sums.totals() * factor)


def fewer(count: Integers, factor: float) -> Integers:
    """Counts scaled down and rounded; a count above zero stays at least one, unless the factor is zero."""
    if not factor:
        return np.zeros_like(count)
    return np.where(count > 0, np.maximum(1, np.floor(count * factor)), 0).astype(np.int64)


def scale_counted(reply: Any, factor: float) -> Any:
    """Scale down any reply with a ``count``: each sum is scaled exactly as its count is."""
    count = fewer(np.asarray(reply.count), factor)
    share = count / np.maximum(reply.count, 1)
    sums = {name: part for name, part in vars(reply).items() if isinstance(part, ExactSums)}
    down = {
        name: scaled(part, share.reshape(share.shape + (1,) * (len(part.shape) - share.ndim)))
        for name, part in sums.items()
    }
    return replace(reply, count=count if count.ndim else int(count), **down)
