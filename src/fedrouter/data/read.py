"""From a data file to evaluations, whichever of the two accepted layouts it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.data.source import Source, file_digest, shown
from fedrouter.encoders import KNOWN, OFFLINE, EncoderIdentity, column_stem
from fedrouter.encoders.sentence import SentenceEncoder, Watch
from fedrouter.errors import BadInput
from fedrouter.evaluations import MOST_COST, Embeddings, Evaluations, Floats, Grid, Integers
from fedrouter.pool import ModelPool

COST = "|total_cost"
EMBEDDING = "_embedding"


@dataclass(frozen=True)
class Dataset:
    """Evaluations, who embedded their queries, and the fingerprint of the file they came from."""

    name: str
    evaluations: Evaluations
    encoder: EncoderIdentity
    digest: str
    simulated: bool = False


def read(
    path: str | Path, *, encoder: str | None = None, pool: ModelPool | None = None, watch: Watch | None = None
) -> Dataset:
    """Read a table in RouterBench's layout, or an evaluation log.

    Parameters
    ----------
    encoder : whose embeddings to use; by default the ones the file has, or the offline encoder's if it has none
    pool : the models to count in; a log may then name no other, and a table's other columns are left out
    watch : told the progress of encoding, where the file has text but no embeddings
    """
    source = Source(path)
    if any(name.endswith(COST) for name in source.names):
        evaluations, identity = _read_table(source, encoder, pool, watch)
    elif {"model", "accuracy", "cost"} <= set(source.names):
        evaluations, identity = _read_log(source, encoder, pool, watch)
    else:
        raise source.error(
            f"wrong columns ({shown(source.names)}): expected a table with 'prompt', 'eval_name', a column a model "
            f"and '<model>{COST}', or a log with 'model', 'accuracy', 'cost' and 'prompt' or 'embedding'"
        )
    return Dataset(source.path.name, evaluations, identity, file_digest(source.path))


def _read_table(
    source: Source, encoder: str | None, pool: ModelPool | None, watch: Watch | None
) -> tuple[Evaluations, EncoderIdentity]:
    """One row a query; an empty cell is a model that was not asked."""
    models = [name.removesuffix(COST) for name in source.names if name.endswith(COST)]
    for model in models:
        if model not in source.names:
            raise source.error(f"column {model + COST!r} has no accuracy column {model!r} beside it")
    table_pool = ModelPool(models)
    if pool is not None and not set(pool.names) & set(models):
        raise source.error(f"no column of the pool's models ({', '.join(pool.names)})")
    task = source.words("eval_name")
    shape = (source.rows, len(models))
    accuracy, cost = np.empty(shape), np.empty(shape)
    for place, model in enumerate(models):
        accuracy[:, place], cost[:, place] = _cells(source, model)
    embeddings, identity = _embeddings(source, encoder, watch)
    text = source.words("prompt") if "prompt" in source.names else None
    evaluations = Evaluations.from_grid(
        Grid(table_pool, accuracy, cost), _finite(source, embeddings), task=task, text=text
    )
    return (evaluations if pool is None else evaluations.over(pool)), identity


def _cells(source: Source, model: str) -> tuple[Floats, Floats]:
    """A model's accuracy and cost, both empty or both in range."""
    accuracy, cost = source.numbers(model), source.numbers(model + COST)
    unknown = np.isnan(accuracy) & np.isnan(cost)
    for column, values, fits, expected in (
        (model, accuracy, (accuracy >= 0) & (accuracy <= 1), "an accuracy in [0, 1]"),
        (model + COST, cost, (cost >= 0) & (cost <= MOST_COST), f"US dollars from 0 to {MOST_COST:,.0f}"),
    ):
        bad = ~(fits | unknown)
        if bad.any():
            row = int(bad.argmax())
            got = "nothing, though the other half of the cell is there" if np.isnan(values[row]) else values[row]
            raise source.error(f"expected {expected}, got {got}", row=row, column=column)
    return accuracy, cost


def _read_log(
    source: Source, encoder: str | None, pool: ModelPool | None, watch: Watch | None
) -> tuple[Evaluations, EncoderIdentity]:
    """One row an evaluation; rows with the same text, or else the same embedding, are the same query."""
    embeddings, identity = _embeddings(source, encoder, watch)
    embeddings = _finite(source, embeddings)
    first, query = _queries(source, embeddings)
    names = source.words("model")
    words: dict[str, Any] = {
        field: tuple(np.array(source.words(column), object)[first].tolist())
        for field, column in (("task", "task"), ("text", "prompt"))
        if column in source.names
    }
    try:
        evaluations = Evaluations(
            pool or ModelPool(sorted(set(names))),
            embeddings[first],
            query,
            np.array(names, object),
            source.numbers("accuracy"),
            source.numbers("cost"),
            **words,
        )
    except BadInput as error:
        raise source.error(str(error)) from None
    return evaluations, identity


def _queries(source: Source, embeddings: Embeddings) -> tuple[Integers, Integers]:
    """The first row of each distinct query, and the query of each row."""
    keys: Any = source.words("prompt") if "prompt" in source.names else [vector.tobytes() for vector in embeddings]
    places: dict[Any, int] = {}
    query = np.array([places.setdefault(key, len(places)) for key in keys])
    _, first = np.unique(query, return_index=True)
    return first, query


def _embeddings(source: Source, encoder: str | None, watch: Watch | None) -> tuple[Embeddings, EncoderIdentity]:
    """The embeddings of the encoder asked for: a column of the file, or else its text encoded now."""
    columns = {name.removesuffix(EMBEDDING).lower(): name for name in source.names if name.endswith(EMBEDDING)}
    if encoder is None:
        known = [name for name in KNOWN if column_stem(name) in columns]
        encoder = known[0] if known else next(iter(columns), None)
    column = columns.get(column_stem(encoder)) if encoder else None
    if column is None and "embedding" in source.names:
        # A log may hold one embedding and leave its encoder to whoever reads it.
        column, encoder = "embedding", encoder or "unnamed"
    if column is not None and encoder is not None:
        vectors = source.vectors(column)
        return vectors, EncoderIdentity.of(encoder, vectors)
    text = next((name for name in ("question", "prompt") if name in source.names), None)
    if text is None:
        raise source.error("neither embeddings nor a 'prompt' column to make them from")
    model = SentenceEncoder(encoder or OFFLINE)
    texts = source.words(text)
    distinct = list(dict.fromkeys(texts))
    place = {words: row for row, words in enumerate(distinct)}
    vectors = model.encode(distinct, watch)[[place[words] for words in texts]]
    return vectors, replace(model.identity(), dimension=vectors.shape[1])


def _finite(source: Source, embeddings: Embeddings) -> Embeddings:
    bad = ~np.isfinite(embeddings).all(axis=1)
    if bad.any():
        raise source.error("expected finite numbers", row=int(bad.argmax()), column="embedding")
    return embeddings
