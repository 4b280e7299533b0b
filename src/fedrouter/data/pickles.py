"""Safe reader of RouterBench's published table, which is a pickle and could execute code; nothing of it is executed.

Resolving the real numpy and pandas names would not be safe: `numpy.ndarray` over chosen bytes, or a `numpy.dtype`
given a chosen state, forges object pointers, and BUILD can overwrite attributes of a class. So each allowed name
resolves to an inert placeholder that only records the call, and the table is rebuilt from those records with checked,
public calls. The result does not depend on the version of pandas that wrote or reads the file.

Nor may a small file take much memory or time: the unpickler allocates what a length or a memo index asks for before it
reads on, so all of them are checked against the size of the file first. Keys of dictionaries must be text: the hash of
a tuple of the same tuple twice, sixty times over, takes for ever, and numbers can be chosen whose hashes are equal. And
a table may not have more cells than its file has bytes, which it could by naming one array as many columns.
"""

from __future__ import annotations

import pickle
import pickletools
from itertools import pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from fedrouter.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Every name that a table of numbers and text needs, as in pandas 1.5 to 3.1, and the kind of its placeholder.
_ALLOWED: Final = {
    ("pandas.core.frame", "DataFrame"): "frame",
    ("pandas", "DataFrame"): "frame",
    ("pandas.core.internals.managers", "BlockManager"): "manager",
    ("pandas._libs.internals", "_unpickle_block"): "block",
    ("builtins", "slice"): "span",
    ("pandas.core.indexes.base", "_new_Index"): "labels",
    ("pandas.core.indexes.base", "Index"): "listed",
    ("pandas.core.indexes.numeric", "Int64Index"): "listed",  # pandas 1
    ("pandas", "Index"): "listed",
    ("pandas.core.indexes.range", "RangeIndex"): "counted",
    ("pandas", "RangeIndex"): "counted",
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.numeric", "_frombuffer"): "buffer",  # protocol 5
    ("numpy._core.numeric", "_frombuffer"): "buffer",
    ("numpy.core.multiarray", "scalar"): "scalar",
    ("numpy._core.multiarray", "scalar"): "scalar",
    ("numpy", "dtype"): "dtype",
    ("numpy", "ndarray"): "mention",
    # Text columns of pandas 3, without pyarrow and with it.
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"): "text",
    ("pandas.arrays", "StringArray"): "mention",
    ("pandas", "StringDtype"): "mention",
    ("pandas.arrays", "ArrowStringArray"): "arrow text",
    ("pyarrow.lib", "_restore_array"): "arrow array",
    ("pyarrow.lib", "type_for_alias"): "arrow type",
    ("pyarrow.lib", "py_buffer"): "raw",
    ("builtins", "bytearray"): "raw",
}
_NUMBERS: Final = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_CELLS: Final = frozenset({str, int, float, bool, type(None)})
_OPCODES: Final = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_LENGTH_BYTES: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
"""Bytes of the length that stands before an argument, by the kind of argument."""
_TEXT: Final = {pickletools.pyunicode, pickletools.pybytes_or_str}
_SETS: Final = {"EMPTY_SET", "ADDITEMS", "FROZENSET"}
_GETS: Final = {"GET", "BINGET", "LONG_BINGET"}
_PUTS: Final = {"PUT", "BINPUT", "LONG_BINPUT"}


class _Kinds:
    """The stack and the memo of an unpickler, of which only is known what is text."""

    def __init__(self) -> None:
        self._top: list[bool] = []
        self._below: list[list[bool]] = []
        self._memo: dict[int, bool] = {}

    def step(self, opcode: pickletools.OpcodeInfo, index: int) -> None:
        """Raise ValueError at a set, or at a key that is no text; ``index`` is that of a memo."""
        name, before, keys = opcode.name, opcode.stack_before, []
        if name in _SETS:
            raise ValueError("a set, which no table has")
        if name == "MARK":
            self._below.append(self._top)
            self._top = []
            return
        if name == "POP" and not self._top:
            self._top = self._below.pop()
            return
        if name in _PUTS or name == "MEMOIZE":
            self._memo[len(self._memo) if name == "MEMOIZE" else index] = self._top[-1]
            return
        if name in _GETS:
            self._top.append(self._memo[index])
            return
        if name == "DUP":
            self._top.append(self._top[-1])
            return
        taken = len(before)
        if pickletools.markobject in before:
            items, self._top = self._top, self._below.pop()
            taken = before.index(pickletools.markobject)
            keys = items[::2] if name in ("SETITEMS", "DICT") else []
        if taken > len(self._top):
            raise ValueError("unpickling stack underflow")
        if name == "SETITEM":
            keys = [self._top[-2]]
        if not all(keys):
            raise ValueError("a key that is no text")
        del self._top[len(self._top) - taken :]
        self._top += [kind in _TEXT for kind in opcode.stack_after]


class _Note:
    """One call in the pickle: its arguments and, after BUILD, its state."""

    __slots__ = ("args", "state")
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: object) -> Self:  # not __init__, which the NEWOBJ opcode does not call
        note = super().__new__(cls)
        note.args, note.state = args, None
        return note

    def __setstate__(self, state: object) -> None:  # without it BUILD would set attributes, even on the class
        self.state = state


PLACEHOLDERS: Final = {kind: type(kind, (_Note,), {"__slots__": ()}) for kind in _ALLOWED.values()}


class _Unpickler(pickle.Unpickler):
    source = ""

    def find_class(self, module: str, name: str) -> type[_Note]:
        if (module, name) in _ALLOWED:
            return PLACEHOLDERS[_ALLOWED[module, name]]
        asked = "".join(c if c.isprintable() else "?" for c in f"{module}.{name}")[:100]
        raise BadInput(
            f"{self.source}: refused: the pickle asks for {asked}, which a table of numbers and text does "
            "not need; nothing was executed. Convert it to parquet where you trust it, then read that."
        )


def _check_sizes(content: mmap) -> None:
    """Raise ValueError at a length or a memo index that the bytes of the pickle cannot justify, or a key not of text.

    What is left after this takes memory in proportion to the file.
    """
    at, end, kinds = 0, len(content), _Kinds()
    while (code := content[at] if at < end else None) != ord(pickle.STOP):
        opcode = _OPCODES.get(code) if code is not None else None
        if opcode is None:
            raise ValueError("it ends without STOP" if code is None else f"no opcode: {code:#04x}")
        at, size, index = at + 1, opcode.arg.n if opcode.arg else 0, 0
        if size >= 0:
            index = int.from_bytes(content[at : at + size], "little")
            value = index if opcode.name in ("FRAME", "LONG_BINPUT") else 0
            at += size
        elif size == pickletools.UP_TO_NEWLINE:
            start, lines = at, 1 + (opcode.name in ("GLOBAL", "INST"))
            for _ in range(lines):
                at = content.find(b"\n", at) + 1 or end + 1
            index = int(content[start:at]) if opcode.name in ("PUT", "GET") else 0
            value = index if opcode.name == "PUT" else 0
        else:
            start, at = at, at + _LENGTH_BYTES[size]
            at, value = at + int.from_bytes(content[start:at], "little"), 0
        # Every earlier index took at least a byte; a frame lies in the file.
        if at > end or value > (end - at if opcode.name == "FRAME" else at):
            raise ValueError(f"{opcode.name} asks for more than there is")
        kinds.step(opcode, index)


def read_pickled_frame(path: Path) -> pd.DataFrame:
    """The DataFrame pickled at `path`; its text columns have dtype object, whatever they were saved as."""
    try:
        import pandas  # noqa: F401
    except ImportError as missing:
        raise MissingExtra("Reading a pickle", "pickle") from missing
    try:
        with path.open("rb") as file:
            with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                _check_sizes(content)
            unpickler = _Unpickler(file)
            unpickler.source = str(path)
            root = unpickler.load()
    except BadInput:
        raise
    except OSError as fault:
        raise BadInput(f"{path}: cannot be read: {fault.strerror}") from fault
    except Exception as fault:  # damaged bytes can raise almost anything
        raise BadInput(f"{path}: not a complete pickle: {str(fault) or type(fault).__name__}") from fault
    if not _is(root, "frame"):
        raise BadInput(f"{path}: expected a pickled pandas DataFrame, found: {type(root).__name__}")
    try:
        return _frame(root, path.stat().st_size)
    except Exception as fault:  # so can calls that do not fit together
        raise BadInput(f"{path}: expected a DataFrame of numbers and text: {fault!r}") from fault


def _is(value: object, kind: str) -> bool:
    return isinstance(value, PLACEHOLDERS[kind])


def _frame(note: Any, most: int) -> pd.DataFrame:
    """The table, if its cells, columns and arrow texts are no more than ``most``, the bytes that it came from."""
    import numpy as np
    import pandas as pd

    blocks, axes = note.state["_mgr"].args
    columns, index = (_labels(axis) for axis in axes)
    if isinstance(columns, pd.RangeIndex):  # it takes a few bytes, whatever its length
        raise ValueError("columns without names")
    found: dict[int, pd.Series[Any]] = {}
    for block in blocks:
        values, position, _ = block.args
        spots = range(*slice(*position.args).indices(len(columns))) if _is(position, "span") else _array(position)
        rows = np.atleast_2d(_array(values))
        most -= rows.size + len(rows)
        if _is(values, "arrow text"):  # each cell a copy of its part of the text
            most -= sum(len(cell) for cell in rows.flat if cell)
        if most < 0:
            raise ValueError("more cells than bytes")
        for spot, row in zip(spots, rows, strict=True):
            if len(row) != len(index):
                raise ValueError(f"a column of {len(row)} values in a table of {len(index)} rows")
            found[int(spot)] = pd.Series(row, dtype=row.dtype)  # explicit, because pandas 3 would convert text
    if found.keys() != set(range(len(columns))):
        raise ValueError(f"values for {len(found)} of {len(columns)} columns")
    frame = pd.DataFrame({spot: found[spot] for spot in sorted(found)}, index=range(len(index)))
    frame.index, frame.columns = index, columns
    return frame


def _labels(note: Any) -> pd.Index[Any]:
    import pandas as pd

    kind, given = note.args
    if type(given["name"]) not in _CELLS:
        raise ValueError("an index whose name is not plain text")
    if kind is PLACEHOLDERS["counted"]:
        return pd.RangeIndex(given["start"], given["stop"], given["step"], name=given["name"])
    values = _array(given["data"])
    labels: pd.Index[Any] = pd.Index(values, dtype=values.dtype, name=given["name"])
    return labels


def _array(note: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    if _is(note, "text"):
        return _array(note.state[1])
    if _is(note, "arrow text"):
        return _objects(_arrow_cells(note.state["_pa_array"]))
    if _is(note, "buffer"):
        raw, dtype, shape, order = note.args
    else:
        _, shape, dtype, by_column, raw = note.state
        order = "F" if by_column else "C"
    flat = _objects(raw) if dtype.args[0] == "O8" else np.frombuffer(raw, _code(dtype))
    return flat.reshape(shape, order=order)


def _code(note: Any) -> str:
    code, order = note.args[0], note.state[1]  # the rest of the state is redundant
    if not type(code) is type(order) is str:  # a text about something nested could be endless
        raise ValueError("values of a type without a name")
    if code not in _NUMBERS or order not in ("<", "|"):
        raise ValueError(f"values of type {order}{code}")
    return f"{order}{code}"


def _objects(cells: list[Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    values = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        if _is(cell, "scalar"):
            cell = np.frombuffer(cell.args[1], _code(cell.args[0]))[0].item()
        if type(cell) not in _CELLS:
            raise ValueError(f"a cell holding: {type(cell).__name__}")
        values[i] = cell
    return values


def _arrow_cells(note: Any) -> list[str | None]:
    """Parse arrow's text layout ourselves: pyarrow would trust the offsets in the file."""
    import numpy as np

    def bare(raw: Any) -> Any:
        return bare(raw.args[0] if raw.args else b"") if _is(raw, "raw") else raw

    kind, length, _, start, buffers, *_ = note.args[0]
    valid, ends, text = map(bare, buffers)
    width = "<i8" if kind.args[0] == "large_string" else "<i4"
    bounds = np.frombuffer(ends, width)[start : start + length + 1]
    if (np.diff(bounds) < 0).any():  # overlapping cells would make a small file huge in memory
        raise ValueError("text offsets that run backwards")
    cells: list[str | None] = [bytes(text[a:b]).decode() for a, b in pairwise(bounds.tolist())]
    if valid is not None:
        part = np.frombuffer(valid, "u1")[start // 8 : (start + length + 7) // 8]
        bits = np.unpackbits(part, bitorder="little")[start % 8 :][:length]
        cells = [cell if bit else None for cell, bit in zip(cells, bits, strict=True)]
    return cells
