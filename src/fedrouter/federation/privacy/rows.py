"""Access of a verb's answer to a client's private rows: by model, and through the minimum group sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.federation.privacy.disclosure import DisclosureControl, evaluation_keys, row_keys
from fedrouter.federation.privacy.fingerprints import Keys
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale


class PrivateRows:
    """The rows of one client, for the answer to one request.

    Parameters
    ----------
    client : the client's name
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
            known = self.control.may_name(rows)
        return tuple(name for name, named in zip(rows.pool.names, known, strict=True) if named)

    def queries(self) -> Embeddings:
        """Embeddings of the queries that have an evaluation."""
        wanted = np.zeros(self._evaluations.queries, np.bool_)
        wanted[self._evaluations.query] = True
        return self._evaluations.embeddings[wanted]

    def of_models(self, models: tuple[str, ...]) -> Evaluations:
        """Evaluations of these models, indexed by the server's pool.

        With minimum group sizes, only models that may be named.
        """
        rows = self._evaluations.over(ModelPool(models))
        if not self.control:
            return rows
        wanted = self.control.may_name(rows)[rows.model]
        return rows.take(np.flatnonzero(wanted)) if not wanted.all() else rows

    def with_cost_scale(self, models: tuple[str, ...], scale: CostScale) -> Evaluations:
        """Evaluations of the models whose cost has a scale; for the others no client disclosed a cost."""
        rows = self.of_models(models)
        return rows.take(np.flatnonzero(scale.count[rows.model] > 0))

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


def require_width(client: str, own: int, width: int) -> None:
    """Raise BadInput if a request is about embeddings of another width than the client's."""
    if width != own:
        raise BadInput(
            f"client {client}: its embeddings have width {own}, the router's {width}; expected the router's encoder"
        )
