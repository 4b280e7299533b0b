"""Read a data file into evaluations: RouterBench's table, SPROUT's table, or an evaluation log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedrouter.data import routerbench, sprout
from fedrouter.data.checks import Hashes, hashed_texts
from fedrouter.data.source import Rows, Source, shown
from fedrouter.encoders import KNOWN, STATIC, EncoderIdentity, column_stem
from fedrouter.encoders.cache import encode_texts
from fedrouter.encoders.encoder import Watch
from fedrouter.errors import BadInput
from fedrouter.evaluations import BadRow, Embeddings, Evaluations, Floats, Grid, Integers, Unscored
from fedrouter.pool import ModelPool

EMBEDDING = "_embedding"
LOG = ("model", "accuracy", "cost")
"""Columns of every evaluation log."""
Texts = Callable[[Any, str], tuple[str, ...]]
"""Reads the texts of a column, as a layout stores them."""


class TableLayout(Protocol):
    """The layout of a table with one row per query; the modules `routerbench` and `sprout` implement it."""

    @property
    def TASK(self) -> str: ...

    def fits(self, source: Rows) -> bool: ...

    def pool(self, source: Source) -> ModelPool: ...

    def cells(self, source: Source, model: str) -> tuple[Floats, Floats]: ...

    def texts(self, source: Source, column: str) -> tuple[str, ...]: ...


TABLES: tuple[TableLayout, ...] = (routerbench, sprout)


@dataclass(frozen=True)
class Dataset:
    """Evaluations, the encoder of their embeddings, and the digest of the file they came from.

    A log's rows without a score are ``unscored``; None if all have one. ``repeated`` rows were logged twice.
    """

    name: str
    evaluations: Evaluations
    encoder: EncoderIdentity
    digest: str
    simulated: bool = False
    unscored: Unscored | None = None
    repeated: int = 0


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
    layout, unscored, repeated = layout_of(source), None, 0
    if layout is not None:
        evaluations, identity = _read_table(source, layout, encoder, pool, watch)
    else:
        evaluations, unscored, repeated, identity = read_log(source, encoder, pool, watch)
        if not len(evaluations):
            raise source.error("no row has a score", column="accuracy")
    return Dataset(source.path.name, evaluations, identity, source.digest(), unscored=unscored, repeated=repeated)


def layout_of(source: Rows) -> TableLayout | None:
    """The layout of a table; None for a log, whose columns are checked."""
    layout = next((layout for layout in TABLES if layout.fits(source)), None)
    if layout is not None:
        return layout
    if "model" not in source.names:
        raise source.error(
            f"wrong columns ({shown(source.names)}): expected a table with 'prompt', 'eval_name', a column per model "
            f"and '<model>{routerbench.COST}', or a log with 'model', 'accuracy', 'cost' and 'prompt' or 'embedding'"
        )
    if missing := [name for name in LOG if name not in source.names]:
        raise source.error(
            f"a log without the column {' and '.join(map(repr, missing))}: expected 'model', 'accuracy', 'cost' "
            f"and 'prompt' or 'embedding', the file has {shown(source.names)}"
        )
    return None


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
    embeddings, identity = embeddings_of(source, encoder, watch, texts=layout.texts)
    text = layout.texts(source, "prompt") if "prompt" in source.names else None
    evaluations = Evaluations.from_grid(Grid(table_pool, accuracy, cost), embeddings, task=task, text=text)
    return (evaluations if pool is None else evaluations.over(pool)), identity


def read_log(
    source: Rows,
    encoder: str | None,
    pool: ModelPool | None,
    watch: Watch | None = None,
    seen: list[Hashes] | None = None,
) -> tuple[Evaluations, Unscored | None, int, EncoderIdentity]:
    """One row per evaluation; rows with the same query name, or else the same text or embedding, are one query.

    Rows that were logged twice count once, also over batches that share what was ``seen``; the third result is how
    many were left out.
    """
    names = source.words("model")
    models = pool or ModelPool(sorted(set(names)))
    accuracy, cost = source.numbers("accuracy"), source.numbers("cost")
    optional: dict[str, Any] = {
        name: source.numbers(name) for name in ("seconds", "propensity") if name in source.names
    }
    again = _again(source, [names, accuracy.tolist(), cost.tolist()], [] if seen is None else seen)
    scored = np.flatnonzero(~np.isnan(accuracy) & ~again)

    # Encoding may take minutes, so bad rows are reported before it.
    nowhere, nothing = np.zeros(len(names), np.int64), np.zeros((1, 1), np.float32)
    known = np.nan_to_num(accuracy, nan=0.0)
    try:
        every = Evaluations(models, nothing, nowhere, np.array(names, object), known, cost, **optional)
    except BadRow as error:
        raise source.error(error.problem, row=error.row, column=error.column) from None
    embeddings, identity = embeddings_of(source, encoder, watch, scored)
    first, query = _queries(source, embeddings, scored)
    words: dict[str, Any] = {
        field: tuple(np.array(source.words(column), object)[scored[first]].tolist())
        for field, column in (("task", "task"), ("text", "prompt"))
        if column in source.names
    }
    columns = optional | {"time": _times(source)}
    evaluations = Evaluations(
        models,
        embeddings[first],
        query,
        every.model[scored],
        accuracy[scored],
        cost[scored],
        **words,
        **{name: None if column is None else column[scored] for name, column in columns.items()},
    )
    return evaluations, _unscored(every, np.isnan(accuracy) & ~again), int(again.sum()), identity


def _again(source: Rows, columns: list[Sequence[object]], seen: list[Hashes]) -> npt.NDArray[np.bool_]:
    """Which rows were there before in every column, time or identifier among them: exported twice, not asked twice."""
    found = np.zeros(source.rows, bool)
    queries, stamps = (
        [name for name in some if name in source.names] for some in (("query", "prompt"), ("id", "time"))
    )
    with suppress(BadInput):  # an empty cell says nothing
        if queries and stamps:
            columns = [*columns, *map(source.words, queries + stamps)]
            key = hashed_texts(map(repr, zip(*columns, strict=True)))
            found[:] = True
            found[np.unique(key, return_index=True)[1]] = False
            found |= np.isin(key, np.concatenate(seen or [key[:0]]))
            seen.append(key[~found])
    return found


def _unscored(every: Evaluations, rows: npt.NDArray[np.bool_]) -> Unscored | None:
    if not rows.any():
        return None
    seconds = None if every.seconds is None else every.seconds[rows]
    return Unscored(every.pool, every.model[rows], every.cost[rows], seconds)


def _times(source: Rows) -> Floats | None:
    """When each row was made, where the log says so in seconds since the epoch; only drift needs it."""
    with suppress(BadInput):
        return source.numbers("time") if "time" in source.names else None
    return None


def _queries(source: Rows, embeddings: Embeddings, rows: Integers) -> tuple[Integers, Integers]:
    """Of some rows, the first one of each distinct query, and the query of each."""
    named = next((name for name in ("query", "prompt") if name in source.names), None)
    words = source.words(named) if named else ()
    keys: Any = [words[row] for row in rows.tolist()] if named else [vector.tobytes() for vector in embeddings]
    indices: dict[Any, int] = {}
    query = np.array([indices.setdefault(key, len(indices)) for key in keys], np.int64)
    _, first = np.unique(query, return_index=True)
    return first, query


def embeddings_of(
    source: Rows,
    encoder: str | None,
    watch: Watch | None = None,
    rows: Integers | None = None,
    texts: Texts = lambda source, column: source.words(column),
) -> tuple[Embeddings, EncoderIdentity]:
    """The embeddings of all rows or of some by the wanted encoder: a column of the file, or else its text encoded."""
    column, wanted = embedding_column(source, encoder)
    if column is not None:
        vectors = _finite(source, source.vectors(column))
        return vectors if rows is None else vectors[rows], EncoderIdentity.of(wanted, vectors)
    text = texts(source, encoded_column(source))
    return encode_texts(encoder or STATIC, text if rows is None else [text[row] for row in rows.tolist()], watch)


def embedding_column(source: Rows, encoder: str | None) -> tuple[str | None, str]:
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


def encoded_column(source: Rows) -> str:
    """The column whose texts are encoded where there are no embeddings."""
    name = next((name for name in ("question", "prompt") if name in source.names), None)
    if name is None:
        raise source.error("neither embeddings nor a 'prompt' column to make them from")
    return name


def _finite(source: Rows, embeddings: Embeddings) -> Embeddings:
    bad = ~np.isfinite(embeddings).all(axis=1)
    if bad.any():
        raise source.error("expected finite numbers", row=int(bad.argmax()), column="embedding")
    return embeddings
