"""Feedback in the log that a router has not learned from yet: newly scored requests and corrected scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedrouter.learning.traffic import scored_at
from fedrouter.store.records import Feedback, Record
from fedrouter.store.scores import JUDGE
from fedrouter.store.store import Store


@dataclass(frozen=True)
class Watermark:
    """How far a router has read a log: all scores up to a time, except for ``waiting``.

    Those are the ids of requests to models of which there were too few rows to begin with.
    """

    until: float
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NewFeedback:
    """A scored request to learn from; ``learned`` is the request with the score that was learned from, if any."""

    record: Record
    learned: Record | None = None


def new_feedback(store: Store, watermark: Watermark | None, since: float | None = None) -> Iterator[NewFeedback]:
    """Requests whose score is newer than the watermark, oldest first; requests before ``since`` are skipped."""
    for record in store.rows(since, scored_only=True):
        if watermark is None or record.id in watermark.waiting:
            yield NewFeedback(record)
        elif scored_at(record) > watermark.until:
            earlier = _standing(store.feedback(record.id), watermark.until) if record.time <= watermark.until else None
            yield NewFeedback(record, None if earlier is None else replace(record, score=earlier.score))


def _standing(sent: Sequence[Feedback], at: float) -> Feedback | None:
    """The score that counted at a time, by the store's rule: the latest, and any user's before a judge's."""
    then = [one for one in sent if one.at <= at]
    return next((one for one in reversed(then) if not one.by.startswith(JUDGE)), then[-1] if then else None)
