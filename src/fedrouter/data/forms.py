"""One data file as columns: parquet, CSV, JSON lines, or RouterBench's pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.data.pickles import read_pickled_frame
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats

if TYPE_CHECKING:
    import pyarrow as pa

FORMS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".pkl": "pickle",
    ".pickle": "pickle",
}


class DataFile:
    """Columns of one file, read on demand; error messages count rows from 1, without the header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise BadInput(f"{path}: no such file")
        self.form = FORMS.get(path.suffix.lower(), "")
        if not self.form:
            raise BadInput(f"{path}: expected a file ending in {', '.join(FORMS)}")
        if path.stat().st_size == 0:
            raise BadInput(f"{path}: the file is empty")
        self._table = self._open()
        if self.rows == 0:
            raise self.error("the file has a header but no rows")

    @property
    def names(self) -> list[str]:
        return list(self._table.column_names) if self.form != "parquet" else list(self._table.schema_arrow.names)

    @property
    def rows(self) -> int:
        return int(self._table.num_rows if self.form != "parquet" else self._table.metadata.num_rows)

    def error(self, problem: str, *, row: int | None = None, column: str | None = None) -> BadInput:
        """An error that names the file, the row (given from 0, shown from 1) and the column."""
        parts = [] if row is None else [f"row {row + 1}"]
        parts += [] if column is None else [f"column {column!r}"]
        return BadInput(": ".join([str(self.path), *([", ".join(parts)] if parts else []), problem]))

    def members(self, name: str) -> tuple[str, ...]:
        """The fields of a column of structs; empty for a plain column."""
        import pyarrow as pa

        schema = self._table.schema_arrow if self.form == "parquet" else self._table.schema
        kind = schema.field(name).type
        return tuple(field.name for field in kind) if pa.types.is_struct(kind) else ()

    def numbers(self, name: str, member: str | None = None) -> Floats:
        """A column of numbers, or a numeric field of a column of structs; NaN where a cell is empty."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(name, member)
        title = name if member is None else f"{name}.{member}"
        if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
            column = column.cast(pa.float64())
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            for row, value in enumerate(column.to_pylist()):
                if value not in (None, "") and not _is_number(value):
                    got = "text" if isinstance(value, str) else "something else"
                    raise self.error(f"expected a number, got {got}", row=row, column=title)
            return np.array([float(value) if value not in (None, "") else np.nan for value in column.to_pylist()])
        return np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(), np.float64)

    def words(self, name: str) -> tuple[str, ...]:
        """A column of text; an empty cell is an error."""
        values = self._column(name).to_pylist()
        for row, value in enumerate(values):
            if value is None or value == "":
                raise self.error("expected text, the cell is empty", row=row, column=name)
        return tuple(str(value) for value in values)

    def vectors(self, name: str) -> Embeddings:
        """A column of embeddings, ``(n, d)``: lists of numbers, in CSV written as JSON."""
        import pyarrow as pa

        column = self._column(name).combine_chunks()
        if pa.types.is_fixed_size_list(column.type) and not column.null_count:
            flat = column.flatten()
            if not flat.null_count:
                return np.asarray(flat.to_numpy(zero_copy_only=False), np.float32).reshape(len(column), -1)
        rows: list[Embeddings] = []
        for row, value in enumerate(column.to_pylist()):
            try:
                vector = np.asarray(json.loads(value) if isinstance(value, str) else value, np.float32)
            except (TypeError, ValueError):
                vector = np.zeros(0, np.float32)
            if vector.ndim != 1 or not vector.size:
                raise self.error("expected a list of numbers", row=row, column=name)
            if rows and len(vector) != len(rows[0]):
                raise self.error(
                    f"expected an embedding of width {len(rows[0])} as in row 1, got {len(vector)}",
                    row=row,
                    column=name,
                )
            rows.append(vector)
        return np.stack(rows)

    def _column(self, name: str, member: str | None = None) -> pa.ChunkedArray:
        if name not in self.names:
            raise self.error(f"no column {name!r}; the file has {shown(self.names)}")
        if self.form == "parquet":
            # Of a column of structs only the wanted field is read: the answers beside it are most of the file.
            column = self._table.read([name if member is None else f"{name}.{member}"]).column(0)
        else:
            column = self._table.column(name)
        if member is None:
            return column
        index = column.type.get_field_index(member)
        return column.flatten()[index]  # null where the whole struct is

    def _open(self) -> Any:
        """A pyarrow Table, or for parquet a file whose columns are read one by one."""
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.json
        import pyarrow.parquet

        try:
            if self.form == "parquet":
                return pyarrow.parquet.ParquetFile(self.path)
            if self.form == "csv":
                one_thread = pyarrow.csv.ReadOptions(use_threads=False)  # errors name the row only on one thread
                lines = pyarrow.csv.ParseOptions(newlines_in_values=True)
                return pyarrow.csv.read_csv(self.path, read_options=one_thread, parse_options=lines)
            if self.form == "jsonl":
                block = pyarrow.json.ReadOptions(block_size=1 << 26)
                return pyarrow.json.read_json(self.path, read_options=block)
        except pa.ArrowException as error:
            raise BadInput(f"{self.path}: not readable as {self.form} ({arrow_reason(error)})") from None
        frame = read_pickled_frame(self.path)
        wanted = [str(name) for name in frame.columns if not str(name).endswith("|model_response")]
        return pa.table({name: _arrow(frame[name].tolist()) for name in wanted})


def _arrow(values: list[Any]) -> Any:
    """A pickled column in arrow: numbers if every cell is a number or NaN, or else text."""
    import pyarrow as pa

    if all(value is None or isinstance(value, int | float) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None or value != value else str(value) for value in values], pa.string())


def shown(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, the first ``most`` of them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def arrow_reason(error: Exception) -> str:
    """The reason and the row of an arrow error, without the cell values that it may quote."""
    text = str(error)
    row = re.search(r"Row #(\d+): (Expected \d+ columns, got \d+)", text)  # counts the header
    if row:
        return f"row {int(row[1]) - 1}: {row[2].lower()}"
    row = re.search(r"in row (\d+)", text)
    return f"{text.splitlines()[0].split(':')[0][:80]}{f' in row {int(row[1]) + 1}' if row else ''}"


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
