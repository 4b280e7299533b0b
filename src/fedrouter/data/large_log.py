"""Read an evaluation log whose embeddings do not fit in memory: one pass over the file, a piece at a time.

Embeddings go to a private file of their own (:mod:`fedrouter.embeddings.stored`), where any row can be read. What else
training needs of a row, four numbers and a fingerprint, is in memory: 40 bytes instead of 1,536 and more. Tasks and
texts stay where they are.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from fedrouter.data.forms import DataFile
from fedrouter.data.source import Source
from fedrouter.embeddings.fingerprints import Fingerprints, word_fingerprints
from fedrouter.embeddings.stored import EmbeddingsWriter, StoredEmbeddings
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Integers
from fedrouter.pool import ModelPool

PIECE = 4096
"""Rows of the file that are in memory at a time."""


def is_large(source: Source, column: str, most: int) -> bool:
    """Whether the embeddings of this column take more than ``most`` bytes."""
    width = next(source.pieces([column], 1)).vectors(column).shape[1]
    return bool(source.rows * width * 4 > most)


def read_large_log(
    source: Source, column: str, encoder: str, pool: ModelPool | None
) -> tuple[Evaluations, EncoderIdentity]:
    """The evaluations of a log with embeddings in this column; rows with the same query are one query, as in memory."""
    named = next((name for name in ("query", "prompt") if name in source.names), None)
    writer, models = EmbeddingsWriter(), ModelIndex(pool)
    keys = np.empty(source.rows if named else 0, np.uint64)
    model, accuracy, cost = np.empty(source.rows, np.int64), np.empty(source.rows), np.empty(source.rows)
    for piece in source.pieces(["model", "accuracy", "cost", column, *([named] if named else [])], PIECE):
        part = slice(writer.rows, writer.rows + piece.rows)
        model[part] = models.of(piece)
        accuracy[part], cost[part] = piece.numbers("accuracy"), piece.numbers("cost")
        writer.write(_vectors(piece, column, writer.width))
        if named:
            keys[part] = word_fingerprints(piece.words(named))
    stored = writer.stored()
    embeddings, query = by_query(stored, keys if named else stored.fingerprints)
    del keys, writer
    ordered, index = models.ordered()
    model = index[model]
    for values in (query, model, accuracy, cost):
        values.flags.writeable = False  # so that they are not copied
    try:
        evaluations = Evaluations(ordered, cast(Embeddings, embeddings), query, model, accuracy, cost)
    except BadInput as error:
        raise source.error(str(error)) from None
    return evaluations, EncoderIdentity.of(encoder, evaluations.embeddings)


def by_query(rows: StoredEmbeddings, keys: Fingerprints) -> tuple[StoredEmbeddings, Integers]:
    """The first row of each distinct query, by its key ``(n,)``, in the order of the log, and the query of each row."""
    if (np.diff(np.sort(keys)) > 0).all():
        return rows, np.arange(len(keys))
    _, first, query = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return rows[first[order]], place[query]


class ModelIndex:
    """Indices of models by name, in the order of the pool, or of their first appearance if there is none yet."""

    def __init__(self, pool: ModelPool | None) -> None:
        self._pool = pool
        self._index = {name: number for number, name in enumerate(pool.names)} if pool else {}

    def of(self, piece: DataFile) -> Integers:
        """The index ``(n,)`` of each row's model."""
        names = piece.words("model")
        for row, name in enumerate(names):
            if name not in self._index:
                if self._pool:
                    known = ", ".join(self._pool.names)
                    raise piece.error(f"{name!r} is not in the pool ({known})", row=row, column="model")
                self._index[name] = len(self._index)
        return np.array([self._index[name] for name in names], np.int64)

    def ordered(self) -> tuple[ModelPool, Integers]:
        """The pool, and the place in it of each index."""
        pool = self._pool or ModelPool(sorted(self._index))
        return pool, np.array([pool.index(name) for name in self._index], np.int64)


def _vectors(piece: DataFile, column: str, width: int | None) -> Embeddings:
    vectors = piece.vectors(column)
    if width is not None and vectors.shape[1] != width:
        raise piece.error(f"expected width {width} as in row 1, got {vectors.shape[1]}", row=0, column=column)
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise piece.error("expected finite numbers", row=int(bad.argmax()), column="embedding")
    return vectors
