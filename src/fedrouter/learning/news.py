"""What a log says that a router has not learned from yet: requests scored since, and scores corrected since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedrouter.learning.traffic import scored_at
from fedrouter.store.records import Feedback, Record
from fedrouter.store.scores import JUDGE
from fedrouter.store.store import Store


@dataclass(frozen=True)
class Mark:
    """How far a router has read a log: every score up to a time, but for requests that wait for more of their model."""

    until: float
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Item:
    """A scored request to be learned from; ``before`` is the same as it was learned from, where it was."""

    record: Record
    before: Record | None = None


def news(store: Store, mark: Mark | None, since: float | None = None) -> Iterator[Item]:
    """Scored requests after the mark, oldest first; ``since`` looks at no request before that time."""
    for record in store.rows(since, scored_only=True):
        if mark is None or record.id in mark.waiting:
            yield Item(record)
        elif scored_at(record) > mark.until:
            stood = _stood(store.feedback(record.id), mark.until) if record.time <= mark.until else None
            yield Item(record, None if stood is None else replace(record, score=stood.score))


def _stood(sent: Sequence[Feedback], at: float) -> Feedback | None:
    """The score that counted at a time, by the store's rule: a judge's gives way to anybody else's, else the latest."""
    then = [one for one in sent if one.at <= at]
    return next((one for one in reversed(then) if not one.by.startswith(JUDGE)), then[-1] if then else None)
