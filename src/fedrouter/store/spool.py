"""The spool: rows that wait while the store cannot be written, in memory and in a file that survives a killed process.

The file has its space on disk from the start, so that a full disk does not keep rows out of it. It is the gateway's
own: of several processes each has one, under a lock. What an ended one left is taken over by one that starts, or by one
that looks for it now and then.
"""

from __future__ import annotations

import base64
import fcntl
import json
import logging
import mmap
import os
import secrets
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from fedrouter.errors import BadInput
from fedrouter.files import PRIVATE
from fedrouter.store.records import Record, SentScore

LOG = logging.getLogger("fedrouter.gateway")
Entry = Record | SentScore
HEADER = struct.Struct("<II")
"""Length and CRC-32 of an entry; a length of 0 ends the file."""
SUFFIX = ".spool-"
UNREAD = ".unread-"
"""The same for a file that cannot be read; it is left to a person, or to the version of the program that wrote it."""


class Spool:
    """Entries in the order in which they came; create one with :meth:`open`.

    ``limit`` is in bytes, as written to the file. Without a file, entries wait in memory only.
    """

    def __init__(self, base: Path, file: _SpoolFile | None, limit: int) -> None:
        self._base, self._file, self._limit = base, file, limit
        self._left: list[_SpoolFile] = []
        self._entries: deque[Entry] = deque()
        self._size = 0

    @classmethod
    def open(cls, base: Path, limit: int) -> Spool:
        """A spool beside ``base``, with what processes that ended have left there."""
        left = _left(base)
        own = base.with_name(f"{base.name}{SUFFIX}{secrets.token_hex(4)}")
        try:
            file = _SpoolFile.create(own, limit) if limit else None
        except OSError as error:
            LOG.warning("%s: no room for rows that wait for the store (%s): memory only", own, error.strerror)
            file = None
        found = cls(base, file, limit)
        found.add_left(left)
        return found

    def look(self) -> list[LeftFile]:
        """What processes that have ended meanwhile left; may run on another thread than the rest."""
        return _left(self._base)

    def holds(self, decision: str, key: str | None = None) -> bool:
        """Whether the row of a decision, of this key if one is given, waits here."""
        rows = (entry for entry in self._entries if isinstance(entry, Record) and entry.id == decision)
        return any(key in (None, row.key) for row in rows)

    def holds_elsewhere(self, decision: str, key: str | None = None) -> bool:
        """The same for the spools of other processes that run; may run on another thread."""
        own = {file.path for file in (*self._left, self._file) if file is not None}
        keys = (_key_of(path, decision) for path in _files(self._base) if path not in own)
        return any(found is not None and key in (None, found) for found in keys)

    def add_left(self, left: list[LeftFile]) -> None:
        """Take over what :meth:`look` found."""
        for file, entries in left:
            if entries:
                self._left.append(file)
                self._entries.extend(entries)
            else:
                file.remove()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        """Whether no more should come; what does is kept in memory all the same."""
        return self._size >= self._limit

    def add(self, entry: Entry) -> None:
        """Keep an entry; it is in the file when this returns, unless that cannot be written."""
        written = _written(entry)
        if self._file is not None and not self.full:
            try:
                self._file.append(written)
            except OSError as error:
                LOG.error("rows that wait for the store are in memory only (%s)", error.strerror)
        self._entries.append(entry)
        self._size += len(written)

    def first(self, most: int) -> list[Entry]:
        return list(islice(self._entries, most))

    def drop(self, count: int) -> None:
        """The first entries are in the store; when all are, their bytes are overwritten."""
        for _ in range(count):
            self._entries.popleft()
        if self._entries:
            return
        self._size = 0
        for file in self._left:
            file.remove()
        self._left = []
        if self._file is not None:
            self._file.clear()

    def close(self) -> None:
        """Leave what waits to the next process."""
        if self._entries:
            LOG.error("%d rows wait for the store; the next process on it writes them", len(self._entries))
        for file in (*self._left, *([self._file] if self._file is not None else [])):
            file.close() if self._entries else file.remove()


class _SpoolFile:
    """One file, which this process has locked."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle, self._end = path, handle, 0

    @classmethod
    def create(cls, path: Path, size: int) -> _SpoolFile:
        hidden = path.with_name(f".{path.name}")  # until it is locked, so that nobody takes it for a left one
        handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
        found = cls(hidden, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.posix_fallocate(handle, 0, size)
            hidden.rename(path)
            found.path = path
        except OSError:
            found.remove()
            raise
        return found

    @classmethod
    def take(cls, path: Path) -> _SpoolFile | None:
        """The file of a process that has ended; None if it still runs."""
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        if not os.fstat(handle).st_nlink:  # removed by its owner after it was opened here
            os.close(handle)
            return None
        return cls(path, handle)

    def append(self, entry: bytes) -> None:
        end = HEADER.pack(0, 0)  # over what may stand there from before
        os.pwrite(self._handle, entry + end, self._end)
        self._end += len(entry)

    def entries(self) -> Iterator[Entry]:
        """What is in it, up to the first entry that is not whole."""
        content = os.pread(self._handle, os.fstat(self._handle).st_size, 0)
        while self._end + HEADER.size <= len(content):
            length, check = HEADER.unpack_from(content, self._end)
            entry = content[self._end + HEADER.size : self._end + HEADER.size + length]
            if not length or len(entry) < length or zlib.crc32(entry) != check:
                return
            self._end += HEADER.size + length
            yield _read(entry)

    def set_aside(self) -> Path:
        """Leave it under a name that nobody looks for; where it is then."""
        self.path = self.path.rename(self.path.with_name(self.path.name.replace(SUFFIX, UNREAD)))
        self.close()
        return self.path

    def clear(self) -> None:
        """Overwrite everything: it holds embeddings."""
        os.pwrite(self._handle, bytes(self._end + HEADER.size), 0)
        self._end = 0

    def close(self) -> None:
        os.close(self._handle)
        self._handle = -1  # which another file may have soon

    def remove(self) -> None:
        self.clear()
        self.path.unlink(missing_ok=True)
        self.close()


LeftFile = tuple[_SpoolFile, list[Entry]]
"""A file that an ended process left, locked by this one now, and what is in it."""


def _files(base: Path) -> list[Path]:
    return sorted(path for path in base.parent.glob(f"{base.name}{SUFFIX}*") if path.is_file())


def _left(base: Path) -> list[LeftFile]:
    found = []
    for path in _files(base):
        file = _SpoolFile.take(path)
        if file is None:
            continue
        try:
            found.append((file, list(file.entries())))
        except (TypeError, KeyError, ValueError, BadInput):  # another version of the program wrote it
            LOG.error("%s: rows that this version cannot read; they stay in %s", path, file.set_aside())
    return found


def _key_of(path: Path, decision: str) -> str | None:
    """The key of a decision whose row is in a file of any process, which is not read into memory; None if it is not."""
    start = b'["record", {"id": %b,' % json.dumps(decision).encode()  # in a text, its quotes would be escaped
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            place = content.find(start) if any(content[: HEADER.size]) else -1
            if place < HEADER.size:
                return None
            length, _ = HEADER.unpack_from(content, place - HEADER.size)
            return str(json.loads(content[place : place + length])[1]["key"])
    except (OSError, ValueError):  # removed or overwritten by its owner, or without space yet
        return None


def _written(entry: Entry) -> bytes:
    fields = dict(vars(entry))
    if isinstance(entry, Record) and entry.embedding is not None:
        fields["embedding"] = base64.b64encode(entry.embedding).decode()
    kind = "record" if isinstance(entry, Record) else "score"
    content = json.dumps([kind, fields]).encode()
    return HEADER.pack(len(content), zlib.crc32(content)) + content


def _read(content: bytes) -> Entry:
    kind, fields = json.loads(content)
    if kind == "score":
        return SentScore(**fields)
    if fields["embedding"] is not None:
        fields["embedding"] = base64.b64decode(fields["embedding"])
    return Record(**fields)
