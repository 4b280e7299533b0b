"""Access to a client's rows for answers under differential privacy.

What is done to an evaluation may depend on that evaluation alone; otherwise one more evaluation would move others. So
minimum group sizes do not select rows here (they apply to noisy counts), and the fold of a query, and whether it
validates, follow from a hash of its embedding and not from its position among the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.evaluations import Embeddings, Evaluations
from fedrouter.federation.dp.accountant import Event, PrivacyAccountant
from fedrouter.federation.dp.sums import LogRange
from fedrouter.federation.message import Request
from fedrouter.federation.privacy.disclosure import query_keys
from fedrouter.federation.privacy.memory import Arrays, Memory
from fedrouter.federation.privacy.policy import DifferentialPrivacy, MinimumGroupSizes
from fedrouter.federation.privacy.rows import FOLDS, require_width
from fedrouter.pool import ModelPool

VALIDATION_BITS = 16


@dataclass(frozen=True)
class NoiseTerms:
    """What turns noisy sums into a reply; nothing in it depends on the rows.

    Parameters
    ----------
    settings : the client's settings of differential privacy
    least_cell, least_cluster : noisy counts below these are set to zero
    costs : the range of log costs
    dimension : width of the client's embeddings
    deviations : standard deviation of the noise on each part of the answer
    """

    settings: DifferentialPrivacy
    least_cell: float
    least_cluster: float
    costs: LogRange
    dimension: int
    deviations: tuple[float, ...] = ()


class NoisyRows:
    """The rows of one client, for one answer with noise; each answer is charged to the accountant before it is made.

    ``paid`` says whether the answer was charged, or releases again what an earlier answer was charged for.
    """

    def __init__(
        self,
        client: str,
        verb: str,
        evaluations: Evaluations,
        settings: DifferentialPrivacy,
        sizes: MinimumGroupSizes | None,
        memory: Memory,
        accountant: PrivacyAccountant,
    ) -> None:
        self._client = client
        self._verb = verb
        self._evaluations = evaluations
        self._memory = memory
        self._accountant = accountant
        self.paid = False
        least = (sizes.cell, sizes.cluster) if sizes else (1, 1)
        self.terms = NoiseTerms(settings, *least, LogRange.of(settings), evaluations.dimension)

    def require_width(self, width: int) -> None:
        """Raise BadInput if a request is about embeddings of another width."""
        require_width(self._client, self._evaluations.dimension, width)

    def of_models(self, request: Request[Any], models: tuple[str, ...], in_fold: bool = False) -> Evaluations:
        """Evaluations of these models outside the fold, or with ``in_fold`` inside it; indexed by the server's pool."""
        rows = self._evaluations.over(ModelPool(models))
        if request.fold < 0:
            return rows.take(np.zeros(0, np.int64)) if in_fold else rows
        inside = query_keys(rows.embeddings) % np.uint64(FOLDS) == request.fold % FOLDS
        return rows.take(np.flatnonzero(inside[rows.query] == in_fold))

    def queries(self, request: Request[Any]) -> Embeddings:
        """Embeddings of the queries that have an evaluation: one evaluation adds at most one of them."""
        rows = self.of_models(request, self._evaluations.pool.names)
        return rows.embeddings[np.unique(rows.query)]

    def validation(self, rows: Evaluations, fraction: float, chosen: bool) -> Evaluations:
        """The rows whose queries validate the training (``chosen``), or the rows that take part in it."""
        part = (query_keys(rows.embeddings) >> np.uint64(VALIDATION_BITS)) % np.uint64(2**VALIDATION_BITS)
        return rows.take(np.flatnonzero((part < fraction * 2**VALIDATION_BITS)[rows.query] == chosen))

    def charge(self, event: Event) -> None:
        """Spend privacy budget on this answer, or raise Refused."""
        self._accountant.charge(self._verb, event)
        self.paid = True

    def released(self, key: str, make: Callable[[], Arrays]) -> Arrays:
        """What was released under this key before, at no further cost; if nothing was, made now and charged."""
        before = self._memory.recall(key)
        if before is None:
            self.charge(Event(self.terms.settings.mechanism, self.terms.settings.multiplier))
            before = make()
            self._memory.remember(key, before)
        self.paid = True
        return before
