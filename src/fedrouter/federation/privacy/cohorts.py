"""Which questions a client has answered in which cohort: two totals that differ by one client reveal that client.

A client cannot see the total that leaves it out. So the others protect it: none of them answers the same question in
two cohorts that differ by fewer than ``gap`` clients. A question counts as the same while the client's own rows are the
same; later on the difference of two totals has the changes of every other client in it, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from fedrouter.errors import Refused
from fedrouter.federation.privacy.memory import Memory


class TooClose(Refused):
    """These questions, by their digests, were answered in a cohort that differs by too few clients."""

    def __init__(self, why: str, questions: Sequence[bytes]) -> None:
        super().__init__(why, "secure_sum")
        self.questions = tuple(questions)


class Cohorts:
    """The cohorts of one client.

    Parameters
    ----------
    name : the client's
    memory : where cohorts are remembered
    rows : digest of the client's rows
    least : smallest cohort in which it takes part
    gap : smallest number of clients by which two cohorts of the same question must differ; 0 for any
    """

    def __init__(self, name: str, memory: Memory, rows: bytes, least: int, gap: int) -> None:
        self._name = name
        self._memory = memory
        self._rows = rows
        self._least = least
        self._gap = gap

    def admit(self, questions: Sequence[bytes], names: Sequence[str], revealed: bool = False) -> None:
        """Raise Refused if these questions, by their digests, must not be answered in this cohort.

        It is TooClose if that is because of what was answered before; the other questions may be.
        Masked sums reveal nothing, so a cohort is remembered only when its total is ``revealed``: clients drop out in
        between, and the total is of those that are left.
        """
        cohort = frozenset(names)
        if len(cohort) < self._least:
            raise self._refuse(f"{len(cohort)} clients take part: expected at least {self._least}")
        nearest = {question: self._nearest(question, cohort) for question in questions}
        close = [question for question, apart in nearest.items() if 0 < apart < self._gap]
        if close:
            raise TooClose(
                f"client {self._name} refuses to take part in secure aggregation: the same question was answered in a "
                f"cohort that differs by {nearest[close[0]]}: expected at least {self._gap}, or none",
                close,
            )
        if revealed:
            listed = json.dumps(sorted(cohort)).encode()
            for key in map(self._key, questions):
                entry = f"{key}{hashlib.sha256(listed).hexdigest()}"
                if self._memory.recall(entry) is None:
                    self._memory.remember(entry, {"names": np.frombuffer(listed, np.uint8)})

    def _nearest(self, question: bytes, cohort: frozenset[str]) -> int:
        """Clients by which the nearest other cohort differs in which the question was answered; 0 if there is none."""
        before = (
            frozenset(json.loads(each["names"].tobytes())) for each in self._memory.remembered(self._key(question))
        )
        return min((len(cohort ^ each) for each in before if each != cohort), default=0)

    def _key(self, question: bytes) -> str:
        return f"cohort/{hashlib.sha256(question + self._rows).hexdigest()}/"

    def _refuse(self, why: str) -> Refused:
        return Refused(f"client {self._name} refuses to take part in secure aggregation: {why}", "secure_sum")
