"""What weight each evaluation had in a client's votes, so that no two votes together are about one query."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from fedrouter.evaluations import Evaluations, Floats
from fedrouter.federation.privacy.disclosure import evaluation_keys, row_keys
from fedrouter.federation.privacy.fingerprints import Keys
from fedrouter.federation.privacy.memory import Memory

PREFIX = "say in votes/"
"""Of the votes in a client's memory."""


class EarlierVotes:
    """The votes that a client has cast, next to one on these ``rows``."""

    def __init__(self, memory: Memory, rows: Evaluations) -> None:
        self._memory = memory
        self._rows = evaluation_keys(rows)
        self._keys = row_keys(rows)

    def with_each(self, say: Floats) -> Iterator[tuple[Keys, Floats]]:
        """The weights ``say`` ``(n, T)`` of this vote alone, and then beside those of each earlier one.

        Each time the key of every evaluation that has a weight in either, and the weights, none where it was not there.
        """
        yield self._keys, say
        for vote in self._memory.remembered(PREFIX):
            rows, first = np.unique(np.concatenate([self._rows, vote["rows"]]), return_index=True)
            columns = np.zeros((len(rows), say.shape[1] + vote["say"].shape[1]))
            columns[np.searchsorted(rows, self._rows), : say.shape[1]] = say
            columns[np.searchsorted(rows, vote["rows"]), say.shape[1] :] = vote["say"]
            yield np.concatenate([self._keys, vote["keys"]])[first], columns

    def remember(self, say: Floats) -> None:
        """Remember this vote; once, however often it is cast."""
        vote = {"rows": self._rows, "keys": self._keys, "say": say}
        name = PREFIX + hashlib.sha256(b"".join(part.tobytes() for part in vote.values())).hexdigest()
        if self._memory.recall(name) is None:
            self._memory.remember(name, vote)
