"""Frames: what travels between coordinator and members, a kind and named fields, as bytes and read back with checks.

A frame is a JSON header followed by the bytes that it points to. Readers ask for each field by its type, so that a
message of the wrong form ends in :class:`BadMessage` and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadMessage

MAGIC: Final = b"FR01"
MOST_BYTES: Final = 1 << 28
MOST_NAME: Final = 128
DTYPES: Final = ("<i8", "<f4", "<f8", "|u1")
BYTES, ARRAY = "$bytes", "$array"


@dataclass(frozen=True)
class Frame:
    """A message: its kind and its fields, which are JSON values, bytes, arrays, or objects and lists of these."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def pack(self) -> bytes:
        body: list[bytes] = []
        header = json.dumps([self.kind, _encoded(dict(self.fields), body)], separators=(",", ":")).encode()
        return b"".join((MAGIC, len(header).to_bytes(4, "little"), header, *body))

    @classmethod
    def unpack(cls, content: bytes) -> Frame:
        try:
            if len(content) > MOST_BYTES or content[:4] != MAGIC:
                raise ValueError
            end = 8 + int.from_bytes(content[4:8], "little")
            body = _Body(content[end:])
            kind, fields = json.loads(content[8:end])
            found = cls(kind, _decoded(fields, body))
            if not isinstance(kind, str) or not isinstance(found.fields, dict) or body.left:
                raise ValueError
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            raise BadMessage("a message that is no frame of this version") from None
        return found

    def text(self, name: str, most: int = MOST_NAME) -> str:
        value: Any = self.fields.get(name)
        return value if isinstance(value, str) and len(value) <= most else self._wrong(name)

    def number(self, name: str, least: int, most: int) -> int:
        value: Any = self.fields.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return int(value) if whole else self._wrong(name)

    def blob(self, name: str, size: int | None = None) -> bytes:
        value: Any = self.fields.get(name)
        return value if isinstance(value, bytes) and size in (None, len(value)) else self._wrong(name)

    def blobs(self, name: str, size: int | None = None) -> dict[str, bytes]:
        """Bytes by member, all of one size if it is given."""
        value: Any = self.fields.get(name)
        if not isinstance(value, dict) or not all(
            isinstance(each, bytes) and size in (None, len(each)) for each in value.values()
        ):
            self._wrong(name)
        return dict(value)

    def names(self, name: str) -> tuple[str, ...]:
        """Different names in order."""
        value: Any = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) and len(each) <= MOST_NAME for each in value):
            self._wrong(name)
        if len(set(value)) != len(value):
            self._wrong(name)
        return tuple(value)

    def array(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
        """An array of this type and shape (None: any length), without NaN or infinity."""
        value: Any = self.fields.get(name)
        fits = (
            isinstance(value, np.ndarray)
            and value.dtype.str == dtype
            and len(value.shape) == len(shape)
            and all(want in (None, got) for want, got in zip(shape, value.shape, strict=True))
            and (value.dtype.kind != "f" or bool(np.isfinite(value).all()))
        )
        found: npt.NDArray[Any] = value if fits else self._wrong(name)
        return found

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Arrays by name, without NaN or infinity."""
        value: Any = self.fields.get(name)
        if not isinstance(value, dict):
            self._wrong(name)
        inner = Frame(self.kind, value)
        return {
            key: inner.array(key, each.dtype.str, each.shape) if isinstance(each, np.ndarray) else self._wrong(name)
            for key, each in value.items()
        }

    def _wrong(self, name: str) -> NoReturn:
        raise BadMessage(f"a message of kind {self.kind[:32]!r} whose field {name!r} has a wrong form")


class _Body:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int) -> bytes:
        if not isinstance(size, int) or not 0 <= size <= self.left:
            raise ValueError
        self._at += size
        return self._content[self._at - size : self._at]


def _encoded(value: Any, body: list[bytes]) -> Any:
    if isinstance(value, bytes):
        body.append(value)
        return {BYTES: len(value)}
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in DTYPES:
            raise TypeError(f"frame: arrays of type {array.dtype} do not travel")
        body.append(array.tobytes())
        return {ARRAY: [array.dtype.str, list(array.shape)]}
    if isinstance(value, Mapping):
        return {key: _encoded(each, body) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(each, body) for each in value]
    return value


def _decoded(value: Any, body: _Body) -> Any:
    if isinstance(value, dict):
        if value.keys() == {BYTES}:
            return body.take(value[BYTES])
        if value.keys() == {ARRAY}:
            dtype, shape = value[ARRAY]
            if dtype not in DTYPES or not all(isinstance(size, int) and size >= 0 for size in shape):
                raise ValueError
            size = int(np.prod([int(one) for one in shape], dtype=object)) * np.dtype(dtype).itemsize
            return np.frombuffer(body.take(size), dtype).reshape(shape)
        return {key: _decoded(each, body) for key, each in value.items()}
    if isinstance(value, list):
        return [_decoded(each, body) for each in value]
    return value
