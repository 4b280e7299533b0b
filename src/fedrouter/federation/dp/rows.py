"""Access to a client's rows for answers under differential privacy.

What is done to an evaluation may depend on that evaluation alone; otherwise one more evaluation would move others. So
minimum group sizes do not select rows here (they apply to noisy counts), and the fold of a query follows from a hash of
its embedding and not from its position among the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.evaluations import Evaluations
from fedrouter.federation.dp.sums import LogRange
from fedrouter.federation.message import Request
from fedrouter.federation.privacy.disclosure import query_keys
from fedrouter.federation.privacy.policy import DifferentialPrivacy, MinimumGroupSizes
from fedrouter.federation.privacy.rows import FOLDS, require_width
from fedrouter.pool import ModelPool


@dataclass(frozen=True)
class NoiseTerms:
    """What turns noisy sums into a reply; nothing in it depends on the rows.

    Parameters
    ----------
    least_cell : noisy counts below this are set to zero
    costs : the range of log costs
    dimension : width of the client's embeddings
    """

    least_cell: float
    costs: LogRange
    dimension: int


class NoisyRows:
    """The rows of one client, for one answer with noise."""

    def __init__(
        self,
        client: str,
        evaluations: Evaluations,
        settings: DifferentialPrivacy,
        sizes: MinimumGroupSizes | None,
    ) -> None:
        self._client = client
        self._evaluations = evaluations
        self.terms = NoiseTerms(sizes.cell if sizes else 1, LogRange.of(settings), evaluations.dimension)

    def require_width(self, width: int) -> None:
        """Raise BadInput if a request is about embeddings of another width."""
        require_width(self._client, self._evaluations.dimension, width)

    def of_models(self, request: Request[Any], models: tuple[str, ...]) -> Evaluations:
        """Evaluations of these models outside the fold, indexed by the server's pool."""
        rows = self._evaluations.over(ModelPool(models))
        if request.fold < 0:
            return rows
        inside = query_keys(rows.embeddings) % np.uint64(FOLDS) == request.fold % FOLDS
        return rows.take(np.flatnonzero(~inside[rows.query]))
