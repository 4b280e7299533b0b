"""A member's evaluations: from a log or table in a file, or from the store of its gateway."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.encoders import EncoderIdentity
    from fedrouter.evaluations import Evaluations
    from fedrouter.store.records import Record


def read_own(log: str, encoder: str) -> tuple[Evaluations, EncoderIdentity]:
    """The evaluations in a file or at a store's URL, and the encoder of their embeddings."""
    if "://" in log:
        return _from_store(log, encoder)
    from fedrouter.data.read import read

    data = read(log, encoder=encoder)
    return data.evaluations, data.encoder


class OwnLog:
    """A log that is read when asked for, and again only if its file has changed; a store changes all the time."""

    def __init__(self, log: str, encoder: str) -> None:
        self._log, self._encoder = log, encoder
        self._kept: tuple[tuple[int, ...], tuple[Evaluations, EncoderIdentity]] | None = None

    def read(self) -> tuple[Evaluations, EncoderIdentity]:
        stamp = self.stamp()
        if not stamp or self._kept is None or self._kept[0] != stamp:
            self._kept = stamp, read_own(self._log, self._encoder)
        return self._kept[1]

    def stamp(self) -> tuple[int, ...]:
        """What changes with a file; nothing for a store."""
        if "://" in self._log:
            return ()
        try:
            found = os.stat(self._log)
        except OSError as error:
            raise BadInput(f"{self._log}: cannot be read ({error.strerror}); --log names another log") from None
        return found.st_ino, found.st_size, found.st_mtime_ns


def _from_store(url: str, encoder: str) -> tuple[Evaluations, EncoderIdentity]:
    """Evaluations from the scored requests in a gateway's store."""
    from fedrouter.encoders import EncoderIdentity, column_stem
    from fedrouter.learning.traffic import evaluations_of
    from fedrouter.pool import ModelPool
    from fedrouter.store.store import Store

    stem = column_stem(encoder)
    with Store.open(url, create=False) as log:

        def usable() -> Iterator[Record]:
            rows = (record for record in log.rows(scored_only=True) if record.embedding and record.served)
            return (record for record in rows if column_stem(record.encoder) == stem)

        # Two passes with a cursor: the first says which models there are.
        served = {str(record.served): len(record.embedding or b"") // 4 for record in usable()}
        if not served:
            # `where` is the URL without the password that it may have.
            raise BadInput(f"{log.where}: no scored request with an embedding by {encoder}")
        identity = EncoderIdentity(encoder, max(served.values()), True)
        evaluations, _ = evaluations_of(usable(), ModelPool(sorted(served)), identity)
    return evaluations, EncoderIdentity.of(encoder, evaluations.embeddings)
