"""Routers prepared for serving: ordinary floating-point products, joined, for one query or a few at a time.

:meth:`~fedrouter.routers.base.Router.estimate` gives a query the same estimates to the bit whatever others there are;
that takes several products where one would do, and a router that is made of others multiplies the queries again for
each of them. A gateway needs neither. So each router says which points it multiplies queries by and what follows from
the products; all points of a composite router are then multiplied at once. Results differ by rounding, so they must not
enter sums that leave a client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Embeddings, Floats


class Found(NamedTuple):
    """Accuracy of every model, then cost, ``(n, 2M)``, and the way to the standard errors of the accuracy.

    ``error`` takes a slice of the models, because errors take longer than all the rest and most requests need that of
    one model; it gives None if the family knows no errors. For a model that the router does not know, everything is
    finite and means nothing.
    """

    means: Floats
    error: Callable[[slice], Floats | None]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A router prepared for serving some of its models; call it with queries ``(n, d)``.

    ``known`` ``(M,)``: which of those models it has estimates for. ``points`` ``(k, d)``: what queries are multiplied
    by. ``finish``: from queries ``(n, d)`` and their products with the points ``(n, k)`` to estimates.
    """

    known: npt.NDArray[np.bool_]
    points: Embeddings
    finish: Callable[[Embeddings, Floats], Found]

    def __call__(self, queries: Embeddings) -> Found:
        return self.finish(queries, (queries @ self.points.T).astype(np.float64))


def joined(
    parts: Sequence[Prepared], known: npt.NDArray[np.bool_], combine: Callable[[Sequence[Found]], Found]
) -> Prepared:
    """Several routers as one, whose queries are multiplied once."""
    ends = np.cumsum([len(part.points) for part in parts]).tolist()
    slices = [slice(end - len(part.points), end) for part, end in zip(parts, ends, strict=True)]
    own = [(part.finish, columns) for part, columns in zip(parts, slices, strict=True)]

    def finish(queries: Embeddings, products: Floats) -> Found:
        return combine([finish(queries, products[:, columns]) for finish, columns in own])

    return Prepared(known, np.concatenate([part.points for part in parts]), finish)
