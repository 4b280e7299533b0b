"""Several packed messages as one string of bytes, and back from bytes that may come from anyone.

A header of JSON names each part's verb, scalars and arrays; the arrays' values follow, in that order. One value
travels in one piece, where an array each would take one HTTP request each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadMessage
from fedrouter.federation.message import Packed

LENGTH_BYTES = 8
KINDS = frozenset({"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"})
"""Types of arrays that may travel: numbers, whose bytes cannot be anything else."""
HEADERS = 4096
"""Bytes allowed for the part of the header that describes one message."""


@dataclass(frozen=True)
class Part:
    """A packed message of a verb, or one word that says why there is none."""

    verb: str
    packed: Packed | None = None
    error: str = ""


def encode(parts: Sequence[Part]) -> bytes:
    """Write messages as bytes."""
    entries: list[dict[str, Any]] = []
    values: list[bytes] = []
    for part in parts:
        if part.packed is None:
            entries.append({"verb": part.verb, "error": part.error})
            continue
        arrays, scalars = part.packed
        described = []
        for name, array in arrays.items():
            array = np.asarray(array, array.dtype.newbyteorder("<"))
            if array.dtype.str not in KINDS:
                raise BadMessage(f"{part.verb}: {name} is an array of {array.dtype}, which cannot travel")
            described.append([name, array.dtype.str, array.shape])
            values.append(array.tobytes())
        entries.append({"verb": part.verb, "scalars": scalars, "arrays": described})
    header = json.dumps(entries).encode()
    return b"".join([len(header).to_bytes(LENGTH_BYTES, "little"), header, *values])


def decode(content: bytes) -> list[Part]:
    """Read what :func:`encode` wrote; anything else is refused."""
    try:
        end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
        entries = json.loads(content[LENGTH_BYTES:end])
        parts = []
        for entry in entries:
            if set(entry) == {"verb", "error"}:
                parts.append(Part(_text(entry["verb"]), error=_text(entry["error"])))
                continue
            if set(entry) != {"verb", "scalars", "arrays"}:
                raise ValueError("other fields")
            arrays = {}
            for name, kind, shape in entry["arrays"]:
                arrays[_text(name)], end = _array(content, end, kind, shape)
            parts.append(Part(_text(entry["verb"]), (arrays, _text(entry["scalars"]))))
        if end != len(content):
            raise ValueError("bytes left over")
    except (ValueError, TypeError, KeyError, RecursionError):
        # The text of the error may quote what was sent.
        raise BadMessage("message: cannot be read") from None
    return parts


def _array(content: bytes, start: int, kind: str, shape: Sequence[int]) -> tuple[npt.NDArray[Any], int]:
    """The array at a position, and where it ends; a copy, because what arrived is kept no longer than needed."""
    if kind not in KINDS or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("not an array of numbers")
    dtype = np.dtype(kind)
    end = start + dtype.itemsize * math.prod(shape)
    if end > len(content):
        raise ValueError("fewer bytes than stated")
    return np.frombuffer(content[start:end], dtype).reshape(shape).copy(), end


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value
