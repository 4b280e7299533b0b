"""One data file as columns, whole or in batches: parquet, CSV, JSON lines, or RouterBench's pickle.

CSV is read as spreadsheets write it: with commas, semicolons or tabs, in UTF-8 or UTF-16, with or without a byte-order
mark, and with decimal commas where commas do not separate columns. What is not read is refused with what was found.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fedrouter.data.pickles import read_pickled_frame
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats

if TYPE_CHECKING:
    import pyarrow as pa

FORMS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".pkl": "pickle",
    ".pickle": "pickle",
}
FOREIGN: Final = {
    b"PAR1": "a parquet file; rename it",
    b"PK\x03\x04": "a zip file, as Excel's .xlsx is; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save the sheet as CSV",
    b"\x1f\x8b": "compressed with gzip; unpack it",
    codecs.BOM_UTF32_LE: "text in UTF-32; save it as UTF-8",
}
"""First bytes of what a text file is not."""
MARKS: Final = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Byte-order marks, and the encodings whose readers skip them."""
DELIMITERS: Final = ",;\t"
NOTHING: Final = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None")
"""Cells of CSV that hold no number."""
HEAD = 1 << 16
"""Bytes by which encoding and delimiter of a CSV file are recognized."""
AT_ONCE = 1 << 14
"""Rows in a batch."""
BLOCK = 1 << 24
"""Bytes of text in a batch. No row may be longer."""
Columns = Callable[[str], bool]
"""Which columns are wanted, by name."""


class DataFile:
    """Columns of one file, read on demand; error messages count rows from 1, without the header.

    A batch of a file is one too: ``table`` has its rows, and row ``first`` of the file is the first of them.
    """

    def __init__(self, path: Path, table: pa.Table | None = None, first: int = 0) -> None:
        self.path, self._first = path, first
        self.form = "batch" if table is not None else form_of(path)
        self._table = self._open() if table is None else table
        if table is None and self.rows == 0:
            raise self.error("the file has a header but no rows")

    @property
    def names(self) -> list[str]:
        return list(self._schema.names)

    @property
    def rows(self) -> int:
        return int(self._table.metadata.num_rows if self.form == "parquet" else self._table.num_rows)

    @property
    def _schema(self) -> pa.Schema:
        return self._table.schema_arrow if self.form == "parquet" else self._table.schema

    def error(self, problem: str, *, row: int | None = None, column: str | None = None) -> BadInput:
        """An error that names the file, the row (given from 0, shown from 1) and the column."""
        parts = [] if row is None else [f"row {self._first + row + 1}"]
        parts += [] if column is None else [f"column {column!r}"]
        return BadInput(": ".join([str(self.path), *([", ".join(parts)] if parts else []), problem]))

    def members(self, name: str) -> tuple[str, ...]:
        """The fields of a column of structs; empty for a plain column."""
        import pyarrow as pa

        kind = self._schema.field(name).type
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
            column = self._parsed(column, title)
        return np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(), np.float64)

    def _parsed(self, column: pa.ChunkedArray, title: str) -> pa.ChunkedArray:
        """Numbers from a column of text, or an error that names the first cell that is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = column
        if pa.types.is_string(column.type):
            values = pc.if_else(pc.is_in(column, pa.array(NOTHING)), None, column)
            try:
                return values.cast(pa.float64())
            except pa.ArrowInvalid:
                pass
        cells: list[float | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                cells.append(_number(value))
            except (TypeError, ValueError):
                got = "text" if isinstance(value, str) else "something else"
                raise self.error(f"expected a number, got {got}", row=row, column=title) from None
        return pa.chunked_array([pa.array(cells, pa.float64())])

    def words(self, name: str) -> tuple[str, ...]:
        """A column of text; an empty cell is an error."""
        values = self._column(name).to_pylist()
        for row, value in enumerate(values):
            if value is None or value == "":
                raise self.error("expected text, the cell is empty", row=row, column=name)
        return tuple(map(str, values))

    def vectors(self, name: str) -> Embeddings:
        """A column of embeddings, ``(n, d)``: lists of numbers, in CSV written as JSON."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(name).combine_chunks()
        kinds = (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list)
        if len(column) and not column.null_count and any(kind(column.type) for kind in kinds):
            widths, flat = pc.unique(pc.list_value_length(column)), column.flatten()
            if len(widths) == 1 and widths[0].as_py() and not flat.null_count and not pa.types.is_nested(flat.type):
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
                    f"expected an embedding of width {len(rows[0])} as in row {self._first + 1}, got {len(vector)}",
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
                return pyarrow.csv.read_csv(self.path, **_csv_options(self.path))
            if self.form == "jsonl":
                block = pyarrow.json.ReadOptions(block_size=1 << 26)
                with _unmarked(self.path) as stream:
                    return pyarrow.json.read_json(stream, read_options=block)
        except (pa.ArrowException, UnicodeError) as error:
            raise _unreadable(self.path, self.form, error) from None
        frame = read_pickled_frame(self.path)
        wanted = [str(name) for name in frame.columns if not str(name).endswith("|model_response")]
        return pa.table({name: _arrow(frame[name].tolist()) for name in wanted})


def batches(path: Path, columns: Columns = lambda name: True) -> Iterator[DataFile]:
    """The rows of a file in order, in parts that fit in memory, with some of its columns."""
    import pyarrow as pa

    form, first = form_of(path), 0
    parts = {"parquet": _parquet_parts, "csv": _csv_parts, "jsonl": _json_parts}.get(form, _whole_parts)
    try:
        for part in parts(path, columns):
            for start in range(0, part.num_rows, AT_ONCE):
                yield DataFile(path, part.slice(start, AT_ONCE), first + start)
            first += part.num_rows
    except (pa.ArrowException, UnicodeError) as error:
        raise _unreadable(path, form, error, first if form == "jsonl" else 0) from None
    if not first:
        raise BadInput(f"{path}: the file has a header but no rows")


def form_of(path: Path) -> str:
    """What kind of file it is, by its name; refused if its first bytes say otherwise."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise BadInput(f"{path}: expected a file ending in {', '.join(FORMS)}")
    with path.open("rb") as stream:
        head = stream.read(4)
    if not head:
        raise BadInput(f"{path}: the file is empty")
    found = next((what for magic, what in FOREIGN.items() if head.startswith(magic)), None)
    if found and form in ("csv", "jsonl"):
        raise BadInput(f"{path}: expected {form} because of its name, found {found}")
    return form


def _parquet_parts(path: Path, columns: Columns) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet

    # Buffered, because one column of one row group may be as large as the file.
    with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        wanted = list(filter(columns, file.schema_arrow.names))
        for batch in file.iter_batches(AT_ONCE, columns=wanted, use_threads=False):
            yield pa.Table.from_batches([batch])


def _csv_parts(path: Path, columns: Columns) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.csv

    with pyarrow.csv.open_csv(path, **_csv_options(path)) as stream:
        wanted = list(filter(columns, stream.schema.names))
        for batch in stream:
            yield pa.Table.from_batches([batch]).select(wanted)


def _json_parts(path: Path, columns: Columns) -> Iterator[pa.Table]:
    import pyarrow.json

    with _unmarked(path) as stream:
        while text := stream.read(BLOCK):
            text += stream.readline()
            block = pyarrow.json.ReadOptions(block_size=len(text) + 1, use_threads=False)
            table = pyarrow.json.read_json(io.BytesIO(text), read_options=block)
            yield table.select(list(filter(columns, table.column_names)))


def _whole_parts(path: Path, columns: Columns) -> Iterator[pa.Table]:
    table = DataFile(path)._table
    yield table.select(list(filter(columns, table.column_names)))


def _csv_options(path: Path) -> dict[str, Any]:
    """How pyarrow is to read a CSV file, by its first bytes: encoding, delimiter, and every column as text."""
    import pyarrow as pa
    import pyarrow.csv

    with path.open("rb") as stream:
        head = stream.read(HEAD)
    encoding = _encoding(path, head)
    header = io.StringIO(head.decode(encoding, errors="replace").removeprefix("\ufeff"))
    rows = {mark: next(csv.reader(io.StringIO(header.getvalue()), delimiter=mark), []) for mark in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda mark: len(rows[mark]))
    return {
        # Errors name the row only on one thread.
        "read_options": pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=encoding),
        "parse_options": pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # A type guessed from the first rows need not fit the others.
        "convert_options": pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in rows[delimiter]}),
    }


def _encoding(path: Path, head: bytes) -> str:
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            return encoding
    zeros = np.frombuffer(head[: len(head) // 2 * 2], np.uint8).reshape(-1, 2) == 0
    if not zeros.any():
        return "utf-8"
    even, odd = zeros.mean(axis=0)
    if max(even, odd) < 0.3:
        raise BadInput(f"{path}: expected CSV in UTF-8, found bytes that are no text")
    return "utf-16-le" if odd > even else "utf-16-be"


@contextmanager
def _unmarked(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a text file in UTF-8, without its byte-order mark."""
    with path.open("rb") as stream:
        head = stream.read(4)
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head:
            raise BadInput(f"{path}: expected JSON lines in UTF-8, found UTF-16; save it as UTF-8")
        stream.seek(len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)
        yield stream


def _number(value: Any) -> float | None:
    """A cell as a number; a comma is decimal unless it may group thousands."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        if value.strip().lower() in ("true", "false"):
            return float(value.strip().lower() == "true")
        number = re.fullmatch(r"[+-]?\d+,\d+([eE][+-]?\d+)?", value)
        if number and not re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", value):
            return float(value.replace(",", "."))
    return float(value)


def _arrow(values: list[Any]) -> Any:
    """A pickled column in arrow: numbers if every cell is a number or NaN, or else text."""
    import pyarrow as pa

    if all(value is None or isinstance(value, int | float) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None or value != value else str(value) for value in values], pa.string())


def shown(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, the first ``most`` of them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _unreadable(path: Path, form: str, error: Exception, first: int = 0) -> BadInput:
    """The error of a file that cannot be parsed; ``first`` is the row of the file that arrow counts from."""
    return BadInput(f"{path}: not readable as {form} ({arrow_reason(error, first)})")


def arrow_reason(error: Exception, first: int = 0) -> str:
    """The reason and the row of an arrow error, without the cell values that it may quote."""
    text = str(error)
    if isinstance(error, UnicodeError) or "invalid UTF8" in text:
        return "expected text in UTF-8 or UTF-16, found another encoding, such as Windows-1252; save it as UTF-8"
    row = re.search(r"Row #(\d+): (Expected \d+ columns, got \d+)", text)  # counts the header
    if row:
        return f"row {int(row[1]) - 1}: {row[2].lower()}"
    row = re.search(r"in row (\d+)", text)
    return f"{text.splitlines()[0].split(':')[0][:80]}{f' in row {first + int(row[1]) + 1}' if row else ''}"
