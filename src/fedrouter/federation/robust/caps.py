"""Per-client weight caps: no client counts for more than so many times the rows of the median client.

Counts and sums are scaled down together, so a client's means stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import FRACTION_BITS, LIMB_BITS, ExactSums
from fedrouter.federation.verbs.messages import Centroids, CostTotals, CostTotalsRequest, HeldOutErrors

Replies = Mapping[str, Any]


def exact(totals: Floats) -> ExactSums:
    """Sums from floats, each rounded once."""
    units = np.ldexp(totals, FRACTION_BITS - LIMB_BITS)
    high = np.floor(units)
    low = np.rint(np.ldexp(units - high, LIMB_BITS))
    return ExactSums(np.stack([high, low], axis=-1).astype(np.int64)).carried()


def changed(sums: ExactSums, totals: Floats) -> ExactSums:
    """The sums where they are these totals already, and exact sums of the totals where not."""
    same = sums.totals() == totals
    return ExactSums(np.where(same[..., None], sums.limbs, exact(totals).limbs))


def _scaled(sums: ExactSums, factor: Floats) -> ExactSums:
    return changed(sums, sums.totals() * factor)


def _cap(rows: Callable[[Any, Any], float], scale: Callable[[Any, float], Any]) -> Callable[[Any, Replies, float], Any]:
    """How a verb's replies are capped: each that has more rows than the median allows is scaled down."""

    def capped(request: Any, replies: Replies, most_rows: float) -> Replies:
        size = {name: float(rows(request, reply)) for name, reply in replies.items()}
        present = [value for value in size.values() if value > 0]
        most = most_rows * float(np.median(present)) if present else 0.0
        return {
            name: reply if size[name] <= most else scale(reply, most / size[name]) for name, reply in replies.items()
        }

    return capped


def _fewer(count: Integers, factor: float) -> Integers:
    """Counts scaled down; where there was a row one stays, unless nothing is to stay."""
    if not factor:
        return np.zeros_like(count)
    return np.where(count > 0, np.maximum(1, np.floor(count * factor)), 0).astype(np.int64)


def scale_sums(reply: Any, factor: float) -> Any:
    """Any reply with a ``count``: every sum goes down exactly as its own count does."""
    count = _fewer(np.asarray(reply.count), factor)
    share = count / np.maximum(reply.count, 1)
    sums = {name: part for name, part in vars(reply).items() if isinstance(part, ExactSums)}
    down = {
        name: _scaled(part, share.reshape(share.shape + (1,) * (len(part.shape) - share.ndim)))
        for name, part in sums.items()
    }
    return replace(reply, count=count if count.ndim else int(count), **down)


def _scale_centroids(reply: Centroids, factor: float) -> Centroids:
    return replace(reply, sizes=_fewer(reply.sizes, factor))


def _scale_held_out(reply: HeldOutErrors, factor: float) -> HeldOutErrors:
    rows = int(_fewer(np.array(reply.rows), factor))
    return HeldOutErrors(rows, _scaled(reply.squares, np.full(1, rows / reply.rows)))


def _scale_totals(reply: CostTotals, factor: float) -> CostTotals:
    share = np.full(reply.observed.shape, factor)
    return CostTotals(_scaled(reply.observed, share), _scaled(reply.predicted, share))


def implied_rows(request: CostTotalsRequest, reply: CostTotals) -> Floats:
    """About how many evaluations of each model ``(M,)`` stand behind the dollars predicted for them."""
    return np.asarray(reply.predicted.totals() / np.exp(request.scale.mean))


CAPPED: Mapping[str, Callable[[Any, Replies, float], Replies]] = {
    "cluster": _cap(lambda request, reply: reply.sizes.sum(), _scale_centroids),
    "validate": _cap(lambda request, reply: reply.rows, _scale_held_out),
    "cost_totals": _cap(lambda request, reply: implied_rows(request, reply).sum(), _scale_totals),
    **dict.fromkeys(
        ("statistics", "cost_scale", "second_moment", "moments", "score"),
        _cap(lambda request, reply: np.sum(reply.count), scale_sums),
    ),
}
