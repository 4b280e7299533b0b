"""Read a data file into evaluations: RouterBench's table, SPROUT's table, or an evaluation log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedrouter.data import routerbench, sprout
from fedrouter.data.source import Source, shown
from fedrouter.encoders import KNOWN, STATIC, EncoderIdentity, column_stem
from fedrouter.encoders.cache import encode_texts
from fedrouter.encoders.encoder import Watch
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Grid, Integers
from fedrouter.pool import ModelPool

EMBEDDING = "_embedding"
LOG = ("model", "accuracy", "cost")
"""Columns of every evaluation log."""
Texts = Callable[[Source, str], tuple[str, ...]]
"""Reads the texts of a column, as a layout stores them."""


class TableLayout(Protocol):
    """The layout of a table with one row per query; the modules `routerbench` and `sprout` implement it."""

    @property
    def TASK(self) -> str: ...

    def fits(self, source: Source) -> bool: ...

    def pool(self, source: Source) -> ModelPool: ...

    def cells(self, source: Source, model: str) -> tuple[Floats, Floats]: ...

    def texts(self, source: Source, column: str) -> tuple[str, ...]: ...


TABLES: tuple[TableLayout, ...] = (routerbench, sprout)


@dataclass(frozen=True)
class Dataset:
    """Evaluations, the encoder of their embeddings, and the digest of the file they came from."""

    name: str
    evaluations: Evaluations
    encoder: EncoderIdentity
    digest: str
    simulated: bool = False


def read(
    path: str | Path,
    *,
    encoder: str | None = None,
    pool: ModelPool | None = None,
    watch: Watch | None = None,
) -> Dataset:
    """Read a table in RouterBench's or SPROUT's layout, or an evaluation log; a folder of parquet is read as one.

    Parameters
    ----------
    encoder : whose embeddings to use; by default those in the file, or those of ``static`` if it has none
    pool : the models to use; a log may then name no other, and a table's other columns are ignored
    watch : called with the progress of encoding, where the file has text but no embeddings
    """
    source = Source(path)
    layout = next((layout for layout in TABLES if layout.fits(source)), None)
    if layout is not None:
        evaluations, identity = _read_table(source, layout, encoder, pool, watch)
    elif "model" in source.names:
        if missing := [name for name in LOG if name not in source.names]:
            raise source.error(
                f"a log without the column {' and '.join(map(repr, missing))}: expected 'model', 'accuracy', 'cost' "
                f"and 'prompt' or 'embedding', the file has {shown(source.names)}"
            )
        evaluations, identity = _read_log(source, encoder, pool, watch)
    else:
        raise source.error(
            f"wrong columns ({shown(source.names)}): expected a table with 'prompt', 'eval_name', a column per model "
            f"and '<model>{routerbench.COST}', or a log with 'model', 'accuracy', 'cost' and 'prompt' or 'embedding'"
        )
    return Dataset(source.path.name, evaluations, identity, source.digest())


def _read_table(
    source: Source, layout: TableLayout, encoder: str | None, pool: ModelPool | None, watch: Watch | None
) -> tuple[Evaluations, EncoderIdentity]:
    """One row per query; an empty cell is a model that was not asked."""
    table_pool = layout.pool(source)
    if pool is not None and not set(pool.names) & set(table_pool.names):
        raise source.error(f"no column of the pool's models ({', '.join(pool.names)})")
    task = source.words(layout.TASK)
    shape = (source.rows, len(table_pool))
    accuracy, cost = np.empty(shape), np.empty(shape)
    for index, model in enumerate(table_pool.names):
        accuracy[:, index], cost[:, index] = layout.cells(source, model)
    embeddings, identity = _embeddings(source, layout.texts, encoder, watch)
    text = layout.texts(source, "prompt") if "prompt" in source.names else None
    evaluations = Evaluations.from_grid(
        Grid(table_pool, accuracy, cost), _finite(source, embeddings), task=task, text=text
    )
    return (evaluations if pool is None else evaluations.over(pool)), identity


def _read_log(
    source: Source, encoder: str | None, pool: ModelPool | None, watch: Watch | None
) -> tuple[Evaluations, EncoderIdentity]:
    """One row per evaluation; rows with the same query name, or else the same text or embedding, are one query."""
    names = source.words("model")
    models = pool or ModelPool(sorted(set(names)))
    accuracy, cost = source.numbers("accuracy"), source.numbers("cost")
    nothing = np.zeros((1, 1), np.float32)

    def checked(vectors: Embeddings, query: Integers, **words: Any) -> Evaluations:
        try:
            return Evaluations(models, vectors, query, np.array(names, object), accuracy, cost, **words)
        except BadInput as error:
            raise source.error(str(error)) from None

    # Encoding may take minutes, so bad rows are reported before it.
    checked(nothing, np.zeros(len(names), np.int64))
    embeddings, identity = _embeddings(source, Source.words, encoder, watch)
    embeddings = _finite(source, embeddings)
    first, query = _queries(source, embeddings)
    words: dict[str, Any] = {
        field: tuple(np.array(source.words(column), object)[first].tolist())
        for field, column in (("task", "task"), ("text", "prompt"))
        if column in source.names
    }
    return checked(embeddings[first], query, **words, time=_times(source)), identity


def _times(source: Source) -> Floats | None:
    """When each row was made, where the log says so in seconds since the epoch; only drift needs it."""
    with suppress(BadInput):
        return source.numbers("time") if "time" in source.names else None
    return None


def _queries(source: Source, embeddings: Embeddings) -> tuple[Integers, Integers]:
    """The first row of each distinct query, and the query of each row."""
    named = next((name for name in ("query", "prompt") if name in source.names), None)
    keys: Any = source.words(named) if named else [vector.tobytes() for vector in embeddings]
    indices: dict[Any, int] = {}
    query = np.array([indices.setdefault(key, len(indices)) for key in keys])
    _, first = np.unique(query, return_index=True)
    return first, query


def _embeddings(
    source: Source, texts: Texts, encoder: str | None, watch: Watch | None
) -> tuple[Embeddings, EncoderIdentity]:
    """The embeddings of the wanted encoder: a column of the file, or else its text encoded now."""
    column, wanted = _embedding_column(source, encoder)
    if column is not None:
        vectors = source.vectors(column)
        return vectors, EncoderIdentity.of(wanted, vectors)
    text = next((name for name in ("question", "prompt") if name in source.names), None)
    if text is None:
        raise source.error("neither embeddings nor a 'prompt' column to make them from")
    return encode_texts(encoder or STATIC, texts(source, text), watch)


def _embedding_column(source: Source, encoder: str | None) -> tuple[str | None, str]:
    """The column with the embeddings of the wanted encoder, or None, and the encoder's name."""
    columns = {name.removesuffix(EMBEDDING).lower(): name for name in source.names if name.endswith(EMBEDDING)}
    if encoder is None:
        known = [name for name in KNOWN if column_stem(name) in columns]
        encoder = known[0] if known else next(iter(columns), None)
    column = columns.get(column_stem(encoder)) if encoder else None
    if column is None and "embedding" in source.names:
        # A log may have one column of embeddings without the name of an encoder.
        column = "embedding"
    return column, encoder or "unnamed"


def _finite(source: Source, embeddings: Embeddings) -> Embeddings:
    bad = ~np.isfinite(embeddings).all(axis=1)
    if bad.any():
        raise source.error("expected finite numbers", row=int(bad.argmax()), column="embedding")
    return embeddings
