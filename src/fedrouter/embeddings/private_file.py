"""A file without a name, for what is larger than memory: no other process can open it, and it is gone with this one.

It is in the folder for temporary files (``TMPDIR``), which should be on a disk.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt


class PrivateFile:
    """Closed with the last object that reads it."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="fedrouter-") as file:
            self._descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        os.close(self._descriptor)

    def append(self, content: memoryview) -> None:
        while len(content):  # a write may stop short, and so may a read
            content = content[os.write(self._descriptor, content) :]

    def write(self, content: memoryview, place: int) -> None:
        while len(content):
            count = os.pwritev(self._descriptor, [content], place)
            content, place = content[count:], place + count

    def read(self, into: memoryview, place: int) -> None:
        while len(into):
            count = os.preadv(self._descriptor, [into], place)
            if not count:
                raise OSError("a private file is shorter than what was written to it")
            into, place = into[count:], place + count


class StoredArrays:
    """Arrays by name in a file of their own; each is read when it is asked for."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        self._file = PrivateFile()
        self._shapes = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        for array in arrays.values():
            if array.size:
                self._file.append(np.ascontiguousarray(array).data.cast("B"))

    def read(self) -> dict[str, npt.NDArray[Any]]:
        """All of them."""
        found, place = {}, 0
        for name, (kind, shape) in self._shapes.items():
            array = found[name] = np.empty(shape, kind)
            if array.size:
                self._file.read(array.data.cast("B"), place)
            place += array.nbytes
        return found
