"""Feedback in the log that a router has not learned from yet: newly scored requests and corrected scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedrouter.learning.traffic import scored_at
from fedrouter.store.records import Feedback, Record
from fedrouter.store.scores import JUDGE
from fedrouter.store.store import Store


@dataclass(frozen=True)
class NewFeedback:
    """A scored request to learn from; ``learned`` is the request with the score that was learned from, if any."""

    record: Record
    learned: Record | None = None


def new_feedback(store: Store, until: float | None) -> Iterator[NewFeedback]:
    """Requests that were scored after all that a router has learned from, oldest first; None: it has read nothing."""
    for record in store.rows(scored_only=True):
        if until is None:
            yield NewFeedback(record)
        elif scored_at(record) > until:
            earlier = _standing(store.feedback(record.id), until) if record.time <= until else None
            yield NewFeedback(record, None if earlier is None else replace(record, score=earlier.score))


def _standing(sent: Sequence[Feedback], at: float) -> Feedback | None:
    """The score that counted at a time, by the store's rule: the latest, and any user's before a judge's."""
    then = [one for one in sent if one.at <= at]
    return next((one for one in reversed(then) if not one.by.startswith(JUDGE)), then[-1] if then else None)
