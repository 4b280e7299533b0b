"""Export of the log as an evaluation log: a file that `learn` and a federation's member read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from sqlalchemy import ColumnElement, func, select

from fedrouter.data.read import EMBEDDING
from fedrouter.data.split import UNLABELLED
from fedrouter.encoders import column_stem
from fedrouter.errors import BadInput
from fedrouter.files import PRIVATE, replacing
from fedrouter.store.records import Record
from fedrouter.store.store import Store
from fedrouter.store.tables import DECISIONS

FORMS = (".parquet", ".jsonl", ".csv")
BATCH = 5000
KEPT = ("id", "time", "reason", "chosen", "tradeoff", "propensity", "explored", "scored_by", "estimated")
"""Columns beyond those of an evaluation log: for off-policy evaluation, and whether the cost is an estimate."""

Columns = dict[str, list[Any]]
Put = Callable[[Columns], None]


@dataclass(frozen=True)
class Exported:
    """What was written, and how many decisions of the period could not be learned from."""

    path: str
    encoder: str
    rows: int
    left_out: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def export(store: Store, path: Path, since: float | None = None) -> Exported:
    """Write the decisions that have a score, a model that served, a cost and an embedding; the write is atomic.

    Embeddings are those of the encoder that most rows have. Prompts are written if the gateway stored all of them.
    """
    if path.suffix not in FORMS:
        raise BadInput(f"{path}: expected a file ending in {', '.join(FORMS)}")
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent}: no such folder")
    decisions, encoder, tasks, texts = _survey(store, since)
    written, width, batch = 0, 0, []
    with replacing(path, PRIVATE) as file, _WRITERS[path.suffix](file) as put:
        for record in store.rows(since, scored_only=True):
            if not _fits(record, encoder):
                continue
            width = width or len(record.embedding or b"")
            if len(record.embedding or b"") != width:
                raise BadInput(f"decision {record.id}: its embedding does not have the width of those before it")
            batch.append(record)
            if len(batch) == BATCH:
                put(_columns(batch, encoder, tasks, texts))
                written, batch = written + len(batch), []
        put(_columns(batch, encoder, tasks, texts))
        written += len(batch)
    return Exported(str(path), encoder, written, decisions - written)


def _survey(store: Store, since: float | None) -> tuple[int, str, bool, bool]:
    """The number of decisions, the encoder of most rows, and whether some of them have a task and all a text."""
    d = DECISIONS.c
    when: list[ColumnElement[bool]] = [] if since is None else [d.time >= since]
    fits = (d.score, d.served, d.cost, d.embedding)
    with store.reading() as connection:
        decisions = connection.execute(select(func.count()).where(*when).select_from(DECISIONS)).scalar() or 0
        found = connection.execute(
            select(d.encoder, func.count(), func.count(d.task), func.count(d.text))
            .where(*when, *(column.is_not(None) for column in fits))
            .group_by(d.encoder)
        ).all()
    if not found:
        raise BadInput(
            f"nothing to export: none of {decisions} decisions has a score, a model that served it, its cost and an "
            "embedding; scores come from POST /v1/feedback or from a judge"
        )
    encoder, rows, tasks, texts = max(found, key=lambda each: each[1])
    return decisions, encoder, tasks > 0, texts == rows


def _fits(record: Record, encoder: str) -> bool:
    known = (record.score, record.served, record.cost, record.embedding)
    return record.encoder == encoder and all(value is not None for value in known)


def _columns(batch: list[Record], encoder: str, with_task: bool, with_text: bool) -> Columns:
    columns: Columns = {
        "model": [record.served for record in batch],
        "accuracy": [record.score for record in batch],
        "cost": [record.cost for record in batch],
    }
    if with_task:
        columns["task"] = [record.task or UNLABELLED for record in batch]
    if with_text:
        columns["prompt"] = [record.text for record in batch]
    columns |= {name: [getattr(record, name) for record in batch] for name in KEPT}
    columns[column_stem(encoder) + EMBEDDING] = [np.frombuffer(record.embedding or b"", "<f4") for record in batch]
    return columns


@contextmanager
def _parquet(file: IO[bytes]) -> Iterator[Put]:
    import pyarrow as pa
    import pyarrow.parquet

    writer = None

    def put(columns: Columns) -> None:
        nonlocal writer
        if not columns["model"]:
            return
        arrays = {}
        for name, values in columns.items():
            if name.endswith(EMBEDDING):
                flat = pa.array(np.concatenate(values))
                arrays[name] = pa.FixedSizeListArray.from_arrays(flat, len(values[0]))
            else:
                # A row may have no value: the first rows of a file must not decide that none has.
                arrays[name] = pa.array(values, pa.bool_() if name == "estimated" else None)
        table = pa.table(arrays)
        writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)

    try:
        yield put
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _jsonl(file: IO[bytes]) -> Iterator[Put]:
    def put(columns: Columns) -> None:
        for row in zip(*columns.values(), strict=True):
            line = {name: _plain(value) for name, value in zip(columns, row, strict=True)}
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    yield put


@contextmanager
def _csv(file: IO[bytes]) -> Iterator[Put]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    out = csv.writer(text)

    def put(columns: Columns) -> None:
        if not text.tell():
            out.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            out.writerow([json.dumps(_plain(v)) if isinstance(v, np.ndarray) else v for v in row])

    try:
        yield put
    finally:
        text.detach()  # flushes, and leaves the file open


def _plain(value: Any) -> Any:
    # A float32 written as the equal double is read back as the same float32.
    return value.tolist() if isinstance(value, np.ndarray) else value


_WRITERS = {".parquet": _parquet, ".jsonl": _jsonl, ".csv": _csv}
