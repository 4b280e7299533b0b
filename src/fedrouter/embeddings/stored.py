"""Embeddings larger than memory: rows in a :class:`~fedrouter.embeddings.private_file.PrivateFile`, read in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedrouter.embeddings.fingerprints import Fingerprints, fingerprints
from fedrouter.embeddings.private_file import PrivateFile
from fedrouter.errors import BadInput

BLOCK_BYTES = 2**22
"""Of embeddings that are in memory at a time."""
MOST_IN_MEMORY = 2**30
"""Bytes of embeddings of a log that are read into memory; those of a larger one are in a file."""
GAP = 8
"""Rows that are read for nothing rather than asking the file again."""

Rows = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]


class StoredEmbeddings:
    """Embeddings ``(n, d)`` float32 in a file, in place of an array.

    Indexing with rows reads nothing: it gives the same file in another order. ``np.asarray`` reads everything; what
    works in blocks (:func:`blocks`) does not.
    """

    ndim = 2
    dtype = np.dtype(np.float32)

    def __init__(self, file: PrivateFile, width: int, keys: Fingerprints, rows: Index | None = None) -> None:
        self._file = file
        self._keys = keys
        self._rows = rows
        self.shape = (len(keys) if rows is None else len(rows), width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> StoredEmbeddings:
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        chosen = rows if isinstance(rows, np.ndarray) else np.arange(len(self))[rows]
        if len(chosen) == len(self) and (not len(self) or (chosen[0] == 0 and _consecutive(chosen))):
            return self  # an index of millions of rows is not small
        mine = chosen if self._rows is None else self._rows[chosen]
        return StoredEmbeddings(self._file, self.shape[1], self._keys, np.ascontiguousarray(mine, np.int64))

    @property
    def fingerprints(self) -> Fingerprints:
        """Those of the rows, which were taken when they were written."""
        return self._keys if self._rows is None else self._keys[self._rows]

    def read(self, start: int = 0, stop: int | None = None) -> Rows:
        """The rows from ``start`` to ``stop``."""
        stop = len(self) if stop is None else min(stop, len(self))
        if self._rows is None:
            return self._range(start, stop)
        order = np.argsort(self._rows[start:stop], kind="stable")
        wanted = self._rows[start:stop][order]
        found = np.empty((len(wanted), self.shape[1]), np.float32)
        for run in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(wanted) > GAP) + 1):
            if len(run):
                first, last = int(wanted[run[0]]), int(wanted[run[-1]])
                found[order[run]] = self._range(first, last + 1)[wanted[run] - first]
        return found

    def _range(self, start: int, stop: int) -> Rows:
        """Rows of the file."""
        found = np.empty((stop - start, self.shape[1]), np.float32)
        if found.size:
            self._file.read(found.data.cast("B"), start * self.shape[1] * 4)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self.read() if dtype is None else self.read().astype(dtype, copy=False)

    def astype(self, kind: Any) -> npt.NDArray[Any]:
        return self.read().astype(kind)

    def copy(self) -> Rows:
        return self.read()

    def mean(self, axis: int = 0, dtype: Any = None) -> npt.NDArray[Any]:
        """The mean row ``(d,)``, added up in float64."""
        assert axis == 0
        total = sum((rows.sum(axis=0, dtype=np.float64) for _, rows in blocks(self)), start=np.zeros(self.shape[1]))
        return np.asarray(total / len(self), dtype or np.float32)


class EmbeddingsWriter:
    """Writes embeddings of one ``width`` to a file of their own; ``rows`` counts them."""

    def __init__(self) -> None:
        self._file = PrivateFile()
        self._keys: list[Fingerprints] = []
        self.width: int | None = None
        self.rows = 0

    def write(self, rows: Rows) -> Fingerprints:
        """Append rows ``(n, d)``; gives their fingerprints."""
        rows = np.ascontiguousarray(rows, np.float32)
        if self.width is None:
            self.width = rows.shape[1]
        if rows.shape[1] != self.width:
            raise ValueError(f"expected embeddings of width {self.width}, got {rows.shape[1]}")
        if rows.size:
            self._file.append(rows.data.cast("B"))
        keys = fingerprints(rows)
        self._keys.append(keys)
        self.rows += len(rows)
        return keys

    def stored(self) -> StoredEmbeddings:
        """What was written."""
        keys = np.concatenate([np.zeros(0, np.uint64), *self._keys])
        return StoredEmbeddings(self._file, self.width or 0, keys)


class EmbeddingsBuffer:
    """Embeddings that come one by one: an array while they fit in memory, and a file from then on."""

    def __init__(self, most: int | None = None) -> None:
        self._most = MOST_IN_MEMORY if most is None else most
        self._bytes = 0
        self._waiting: list[Rows] = []
        self._writer: EmbeddingsWriter | None = None

    def append(self, row: Rows) -> None:
        """Add one embedding ``(d,)``."""
        self._waiting.append(row)
        self._bytes += row.nbytes
        if self._bytes > (self._most if self._writer is None else BLOCK_BYTES):
            self._writer = self._writer or EmbeddingsWriter()
            self._spill(self._writer)

    def _spill(self, writer: EmbeddingsWriter) -> None:
        step = max(1, BLOCK_BYTES // max(1, self._waiting[0].nbytes))
        for start in range(0, len(self._waiting), step):
            rows = np.stack(self._waiting[start : start + step])
            if not np.isfinite(rows).all():
                raise BadInput("column 'embedding': expected a vector of finite numbers")
            writer.write(rows)
        self._waiting, self._bytes = [], 0

    def rows(self, width: int) -> Rows:
        """All of them, ``(n, width)``."""
        if self._writer is None:
            return np.array(self._waiting, np.float32).reshape(len(self._waiting), width)
        if self._waiting:
            self._spill(self._writer)
        return cast(Rows, self._writer.stored())


def blocks(embeddings: Rows | StoredEmbeddings) -> Iterator[tuple[slice, Rows]]:
    """Embeddings ``(n, d)`` in blocks: which rows they are, and the rows; one empty block if there are none.

    An array is divided, too: what is made of a block, in float64 and more than once, is larger than the block.
    """
    size = max(1, BLOCK_BYTES // (4 * max(1, embeddings.shape[1])))
    for start in range(0, max(1, len(embeddings)), size):
        part = slice(start, min(start + size, len(embeddings)))
        if isinstance(embeddings, StoredEmbeddings):
            yield part, embeddings.read(part.start, part.stop)
        else:
            yield part, embeddings[part]


def _consecutive(rows: Index) -> bool:
    """Whether each is the one before plus 1; looked at in pieces, because the differences of millions are not small."""
    step = BLOCK_BYTES // 8
    return all((np.diff(rows[start : start + step + 1]) == 1).all() for start in range(0, len(rows), step))
