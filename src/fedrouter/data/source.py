"""A data set as columns: one file, or a folder of parquet shards read as one table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrouter.data.forms import DataFile, shown
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats

__all__ = ["Rows", "Source", "file_digest", "parts_of", "shown"]


class Source:
    """Columns of one file, or of several with the same columns; an error names the file and the row in it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._files = [DataFile(part) for part in parts_of(self.path)]
        self.names = self._files[0].names
        for file in self._files[1:]:
            differ = sorted({*file.names} ^ {*self.names})
            if differ:
                raise file.error(
                    f"a folder is read as shards of one table, but its columns are not those of "
                    f"{self._files[0].path.name}: {shown(differ)}"
                )

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files)

    def error(self, problem: str, *, row: int | None = None, column: str | None = None) -> BadInput:
        """An error that names the file, the row (from 0 over all files, shown from 1 in its own) and the column."""
        if row is None:
            return BadInput(f"{self.path}: {f'column {column!r}: ' if column else ''}{problem}")
        for file in self._files:
            if row < file.rows:
                break
            row -= file.rows
        return file.error(problem, row=row, column=column)

    def members(self, name: str) -> tuple[str, ...]:
        """The fields of a column of structs; empty for a plain column."""
        return self._files[0].members(name)

    def numbers(self, name: str, member: str | None = None) -> Floats:
        """A column of numbers, or a numeric field of a column of structs; NaN where a cell is empty."""
        return np.concatenate([file.numbers(name, member) for file in self._files])

    def words(self, name: str) -> tuple[str, ...]:
        """A column of text; an empty cell is an error."""
        return tuple(word for file in self._files for word in file.words(name))

    def vectors(self, name: str) -> Embeddings:
        """A column of embeddings, ``(n, d)``."""
        parts = [file.vectors(name) for file in self._files]
        for file, part in zip(self._files, parts, strict=True):
            if part.shape[1] != parts[0].shape[1]:
                wide, first = parts[0].shape[1], self._files[0].path.name
                raise file.error(f"expected width {wide} as in {first}, got {part.shape[1]}", column=name)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def digest(self) -> str:
        """SHA-256 of the file, or of the names and digests of the shards in order."""
        if self.path.is_file():
            return file_digest(self.path)
        import hashlib

        content = hashlib.sha256()
        for file in self._files:
            content.update(f"{file.path.name} {file_digest(file.path)}\n".encode())
        return f"sha256:{content.hexdigest()}"


Rows = Source | DataFile
"""All rows of a data set, or a batch of them."""


def parts_of(path: Path) -> list[Path]:
    """The files of a data set: itself, or the shards in a folder."""
    if not path.is_dir():
        return [path]
    parts = sorted(part for part in path.glob("*.parquet") if not part.name.startswith("."))
    if not parts:
        raise BadInput(f"{path}: a folder without .parquet files; expected shards of one table, or a file")
    return parts


def file_digest(path: Path) -> str:
    import hashlib

    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
