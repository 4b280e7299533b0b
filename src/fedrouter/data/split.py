"""The paper's partition as files: a log and a test set for each client, and the union of the test sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.data.partition import ClientData
from fedrouter.data.read import EMBEDDING
from fedrouter.data.routerbench import COST, TASK
from fedrouter.encoders import EncoderIdentity, column_stem
from fedrouter.evaluations import Evaluations, Integers

if TYPE_CHECKING:
    import pyarrow as pa

UNLABELLED = "unlabelled"
"""The task label in tables made from data without tasks."""


@dataclass(frozen=True)
class WrittenClient:
    """A client's files; None for a file that would be empty."""

    name: str
    train: int
    test: int
    log: Path | None
    own_test: Path | None


def write_split(
    clients: Sequence[ClientData], encoder: EncoderIdentity, folder: Path
) -> tuple[list[WrittenClient], Path]:
    """Write every client's ``NAME.parquet`` and ``NAME-test.parquet``, and ``test.parquet`` with all test sets."""
    written = []
    for client in clients:
        log = own_test = None
        if len(client.train):
            log = write_log(folder / f"{client.name}.parquet", client.train, encoder)
        if client.test.queries:
            own_test = write_table(folder / f"{client.name}-test.parquet", client.test, encoder)
        written.append(WrittenClient(client.name, len(client.train), client.test.queries, log, own_test))
    tests = Evaluations.concatenate([client.test for client in clients])
    return written, write_table(folder / "test.parquet", tests, encoder)


def write_log(path: Path, evaluations: Evaluations, encoder: EncoderIdentity) -> Path:
    """Write a log: one row per evaluation, sorted by query; `query` distinguishes two queries with the same text."""
    order = np.argsort(evaluations.query, kind="stable")
    query = evaluations.query[order]
    columns: dict[str, Any] = {"query": query}
    if evaluations.text is not None:
        columns["prompt"] = [evaluations.text[row] for row in query]
    if evaluations.task is not None:
        columns["task"] = [evaluations.task[row] for row in query]
    names = np.array(evaluations.pool.names, object)
    columns |= {
        "model": names[evaluations.model[order]],
        "accuracy": evaluations.accuracy[order],
        "cost": evaluations.cost[order],
    }
    return _write(path, columns, evaluations, query, encoder)


def write_table(path: Path, evaluations: Evaluations, encoder: EncoderIdentity) -> Path:
    """Write RouterBench's layout: one row per query, two columns per model, empty where the model was not asked."""
    grid = evaluations.grid()
    columns: dict[str, Any] = {}
    if evaluations.text is not None:
        columns["prompt"] = evaluations.text
    columns[TASK] = evaluations.task or [UNLABELLED] * evaluations.queries
    for values, suffix in ((grid.accuracy, ""), (grid.cost, COST)):
        for index, model in enumerate(evaluations.pool.names):
            columns[model + suffix] = values[:, index]
    return _write(path, columns, evaluations, np.arange(evaluations.queries), encoder)


def _write(
    path: Path, columns: dict[str, Any], evaluations: Evaluations, rows: Integers, encoder: EncoderIdentity
) -> Path:
    import pyarrow as pa
    import pyarrow.parquet

    flat = pa.array(evaluations.embeddings[rows].ravel())
    columns[column_stem(encoder.name) + EMBEDDING] = pa.FixedSizeListArray.from_arrays(flat, evaluations.dimension)
    pyarrow.parquet.write_table(pa.table({name: _cells(values) for name, values in columns.items()}), path)
    return path


def _cells(values: Any) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, from_pandas=True) if isinstance(values, np.ndarray) else pa.array(values)
