"""Access of a verb's answer to a client's private rows: by fold, by model, and through the minimum group sizes."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.federation.message import Request
from fedrouter.federation.privacy.disclosure import (
    DisclosureControl,
    evaluation_keys,
    query_keys,
    row_keys,
)
from fedrouter.federation.privacy.fingerprints import Keys, Mask
from fedrouter.federation.privacy.leverage import differ_together
from fedrouter.federation.seeds import derive
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale

FOLDS = 5
"""Number of parts into which a client divides its queries for cross-validation."""


class PrivateRows:
    """The rows of one client, for the answer to one request.

    Parameters
    ----------
    client : the client's name, from which its folds are drawn
    evaluations : the rows that take part
    control : the client's disclosure control; None if it sets no minimum group sizes
    relaxed : whether the answer is hidden so well that single queries may have any say in it
    masked : number of clients in the secure sum that masks the answer before it leaves, 0 if none does. Under masks it
        must have its full length, also where nothing may be sent
    """

    def __init__(
        self,
        client: str,
        evaluations: Evaluations,
        control: DisclosureControl | None,
        relaxed: bool = False,
        masked: int = 0,
    ) -> None:
        self._client = client
        self._evaluations = evaluations
        self.control = control
        self.relaxed = relaxed
        self.masked = masked

    @property
    def dimension(self) -> int:
        """The width of the embeddings."""
        return self._evaluations.dimension

    def require_width(self, width: int) -> None:
        """Raise BadInput if a request is about embeddings of another width."""
        require_width(self._client, self.dimension, width)

    def known_models(self) -> tuple[str, ...]:
        """Models with evaluations; with minimum group sizes, those with enough of them."""
        rows = self._evaluations
        known = np.bincount(rows.model, minlength=len(rows.pool)) > 0
        if self.control:
            self.control.applied.add("cell")
            known = self.control.may_name(rows, np.zeros(len(rows), np.bool_))
        return tuple(name for name, named in zip(rows.pool.names, known, strict=True) if named)

    def queries(self, request: Request[Any]) -> Embeddings:
        """Embeddings of the queries outside the fold that have an evaluation."""
        wanted = np.zeros(self._evaluations.queries, np.bool_)
        wanted[self._evaluations.query] = True
        wanted &= ~self._inside(request)
        return self._evaluations.embeddings[wanted]

    def of_models(self, request: Request[Any], models: tuple[str, ...], in_fold: bool = False) -> Evaluations:
        """Evaluations of these models outside the fold, or with ``in_fold`` inside it; indexed by the server's pool.

        With minimum group sizes, only models that may be named.
        """
        rows = self._evaluations.over(ModelPool(models))
        inside = self._inside(request)[rows.query]
        wanted = inside == in_fold
        if self.control:
            wanted &= self.control.may_name(rows, inside)[rows.model]
        return rows.take(np.flatnonzero(wanted)) if not wanted.all() else rows

    def with_cost_scale(self, request: Request[Any], models: tuple[str, ...], scale: CostScale) -> Evaluations:
        """Evaluations of the models whose cost has a scale; for the others no client disclosed a cost."""
        rows = self.of_models(request, models)
        return rows.take(np.flatnonzero(scale.count[rows.model] > 0))

    def validation(self, rows: Evaluations, fraction: float) -> Mask:
        """Which rows ``(n,)`` validate the training instead of taking part in it; the same in every round.

        Whole queries are taken: otherwise a query would be validated by what another model's row of it taught. A model
        whose rows would all be taken keeps them, because a model that is never trained is worse than one that is never
        validated.
        """
        if not fraction:
            return np.zeros(len(rows), bool)
        queries = np.unique(rows.query)
        draw = np.random.default_rng(derive(0, "held out", self._client))
        held = np.isin(rows.query, draw.permutation(queries)[: round(fraction * len(queries))])
        return np.asarray(held & np.isin(rows.model, rows.model[~held]))

    def sendable(self, rows: Evaluations, group: Integers, size: int) -> tuple[Evaluations, Integers]:
        """The rows, and their group ``(n,)`` in ``range(size)``, whose group may be summed and sent."""
        if not self.control:
            return rows, group
        if not len(rows):
            self.control.applied.add("cell")
            return rows, group
        allowed = self.control.may_send(row_keys(rows), group, size, evaluation_keys(rows), jointly=not self.relaxed)
        kept = np.flatnonzero(allowed[group])
        return rows.take(kept), group if len(kept) == len(group) else group[kept]

    def sendable_by_model(self, rows: Evaluations) -> Evaluations:
        """The rows of the models whose rows may be summed."""
        return self.sendable(rows, rows.model, len(rows.pool))[0]

    def sendable_together(self, rows: Evaluations) -> Evaluations:
        """All of these rows if they may be summed as one group, or none."""
        return self.sendable(rows, np.zeros(len(rows), np.int64), 1)[0]

    def sendable_apart(self, rows: Evaluations, kind: str) -> Evaluations:
        """All of these rows, or none if there are too few, or they differ by too few from earlier ones of this kind.

        For sums that say nothing together with sums of another kind, and so do not limit what those may be of.
        """
        if not self.control:
            return rows
        one = np.zeros(len(rows), np.int64)
        if not self.control.enough(rows) or not len(rows):
            return rows.take(one[:0])
        allowed = self.control.may_send(row_keys(rows), one, 1, evaluation_keys(rows), kind=kind)
        return rows if allowed[0] else rows.take(one[:0])

    def heard(self, keys: Keys, columns: Callable[[], Floats], group: Integers, under_masks: float = 1.0) -> Integers:
        """Indices ``(m,)`` of the rows, by their ``keys`` ``(n,)``, in whose group no query has too much say.

        ``columns`` makes the weights ``(n, k)`` that the question gives the rows. ``under_masks`` is the say that a
        query may have at least where secure aggregation hides the answer; by default every row is heard there: small
        clients could not take part otherwise, and the question itself is checked.
        """
        if not self.control:
            return np.arange(len(keys))
        return self.control.heard(columns, keys, group, under_masks if self.relaxed else 0.0)

    def differing_together(self, keys: Keys, columns: Embeddings) -> Integers:
        """Indices ``(m,)`` of the rows but for those that differ in a column in which most agree, with too few others.

        Also where secure aggregation hides the answer: a row that is the only one of all clients shows in the total.
        """
        return differ_together(columns, keys, self.control.sizes.cell) if self.control else np.arange(len(keys))

    def prediction_columns(self, predicted: Floats, accuracy: Floats) -> Floats:
        """What a question for squared errors of predictions ``(n, k)`` weighs the rows by, for :meth:`heard`.

        The constant, because errors of other predictions may be subtracted. Accuracy itself only in the clear: under
        masks the limit is so close to what an attacker can reach that leaving out rows by it would show it.
        """
        columns = [np.ones(len(predicted)), predicted, *([] if self.relaxed else [accuracy])]
        return np.column_stack(columns)

    def may_multiply(self, keys: Keys, group: Integers, size: int, width: int, kind: str) -> Mask:
        """Which groups ``(size,)`` of rows may have products of ``width`` features summed and sent.

        Each group needs enough rows for each feature to hide which rows they are, and so does its difference from any
        group sent before.
        """
        if not self.control:
            return np.ones(size, np.bool_)
        sizes = self.control.sizes
        alone = self.relaxed or sizes.say >= 1
        return self.control.may_send(
            keys, group, size, kind=kind, least=sizes.cell if alone else ceil(width / sizes.say)
        )

    def _inside(self, request: Request[Any]) -> Mask:
        """Which queries ``(q,)`` lie in the fold of the request, if it names one."""
        if request.fold < 0:
            return np.zeros(self._evaluations.queries, np.bool_)
        return np.asarray(folds(self._evaluations.embeddings, self._client) == request.fold % FOLDS)


def folds(queries: Embeddings, client: str) -> Integers:
    """The fold ``(q,)`` of each query, from its own fingerprint and the client's name.

    So a query keeps its fold as the log grows: sums without a fold differ from those of yesterday by the new queries
    alone, and a query that was asked twice is in one fold.
    """
    mixed = (query_keys(queries) ^ np.uint64(derive(0, "fold", client))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed >> np.uint64(32)) % np.uint64(FOLDS), np.int64)


def require_width(client: str, own: int, width: int) -> None:
    """Raise BadInput if a request is about embeddings of another width than the client's."""
    if width != own:
        raise BadInput(
            f"client {client}: its embeddings have width {own}, the router's {width}; expected the router's encoder"
        )
