"""A file of JSON lines that a full disk or a killed process leaves readable: a line is whole, or it does not count."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def append(path: Path, entry: Mapping[str, Any]) -> None:
    """Add a line; ``OSError`` if it cannot be written, with the file as it was."""
    line = json.dumps(entry).encode() + b"\n"
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            line = b"\n" + line  # what was cut off there stays apart
        try:
            if file.write(line) != len(line):
                raise OSError(f"{path}: no space left for a line")
        except OSError:
            file.truncate(size)
            raise


def entries(path: Path) -> list[dict[str, Any]]:
    """All whole lines, oldest first; none if there is no such file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    return [found for line in lines if (found := _read(line)) is not None]


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
