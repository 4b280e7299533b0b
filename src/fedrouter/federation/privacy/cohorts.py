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

        Masked sums reveal nothing, so a cohort is remembered only when its total is ``revealed``: clients drop out in
        between, and the total is of those that are left.
        """
        cohort = frozenset(names)
        if len(cohort) < self._least:
            raise self._refuse(f"{len(cohort)} clients take part: expected at least {self._least}")
        keys = [self._key(question) for question in questions]
        for key in keys:
            for before in self._memory.remembered(key):
                apart = len(cohort ^ frozenset(json.loads(before["names"].tobytes())))
                if 0 < apart < self._gap:
                    raise self._refuse(
                        f"the same question was answered in a cohort that differs by {apart}: expected at least "
                        f"{self._gap}, or none"
                    )
        if revealed:
            listed = json.dumps(sorted(cohort)).encode()
            for key in keys:
                entry = f"{key}{hashlib.sha256(listed).hexdigest()}"
                if self._memory.recall(entry) is None:
                    self._memory.remember(entry, {"names": np.frombuffer(listed, np.uint8)})

    def _key(self, question: bytes) -> str:
        return f"cohort/{hashlib.sha256(question + self._rows).hexdigest()}/"

    def _refuse(self, why: str) -> Refused:
        return Refused(f"client {self._name} refuses to take part in secure aggregation: {why}", "secure_sum")
