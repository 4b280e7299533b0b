"""A disk cache of embeddings: each encoder encodes a text once, however often it is read.

There is one SQLite file per encoder, named after it and a fingerprint of its files; the fingerprint is also part of
every key, so another model under the same name never answers for it. Only hashes and embeddings are stored, no text;
but an embedding can reveal its text, so only the user can read the files. A cache that is damaged or cannot be written
costs time, but never fails a run.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedrouter.encoders.encoder import Watch
from fedrouter.encoders.identity import OFFLINE, STATIC, EncoderIdentity, column_stem
from fedrouter.encoders.location import locate_verified
from fedrouter.encoders.registry import open_encoder
from fedrouter.encoders.sentence import SentenceEncoder
from fedrouter.encoders.weights import folder_fingerprint, weights_digest
from fedrouter.evaluations import Embeddings
from fedrouter.files import PRIVATE

RECIPE = "1"
"""Version of how a text is prepared before it is encoded; raise it when that changes."""
PORTION = 512
"""Number of texts that are encoded before they are stored: an interrupted run keeps what it has done."""
BUSY_SECONDS = 30.0
"""Seconds to wait while another process writes."""
RETRY_SECONDS = 0.02
TABLE = "CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL)"
T = TypeVar("T")
_LOG = logging.getLogger("fedrouter.encoders")


def encode_texts(name: str, texts: Sequence[str], watch: Watch | None = None) -> tuple[Embeddings, EncoderIdentity]:
    """Embeddings ``(n, d)`` float32 of texts, and who made them; a neural network's are cached, a table is faster."""
    if name == STATIC:
        static = open_encoder(name)
        return static.encode(texts, watch), static.identity()
    model = CachedEncoder(name)
    embeddings = model.encode(texts, watch)
    return embeddings, EncoderIdentity(name, embeddings.shape[1], normalised=True, weights=model.weights)


class CachedEncoder:
    """A neural encoder that is loaded only when a text is not in the cache."""

    def __init__(self, name: str = OFFLINE) -> None:
        self.name = name
        self._model: SentenceEncoder | None = None

    @property
    def weights(self) -> str | None:
        """The digest of the encoder's weights, ``sha256:…``; None where its files are not on this machine."""
        return None if self._folder is None else weights_digest(self._folder)

    def encode(self, texts: Sequence[str], watch: Watch | None = None) -> Embeddings:
        """Embeddings ``(n, d)`` float32 of length one; `watch` is called while texts have to be encoded."""
        store = self._store
        distinct = list(dict.fromkeys(texts))
        known = {} if store is None else store.get(distinct)
        # Texts of similar length share a portion, because padding costs time.
        missing = sorted((text for text in distinct if text not in known), key=len)
        for start in range(0, len(missing), PORTION):
            portion = missing[start : start + PORTION]
            fresh = self._loaded().encode(portion, _counted(watch, len(known), len(distinct)))
            known |= zip(portion, fresh, strict=True)
            if store is not None:
                store.put(portion, fresh)
        if not known:
            return np.zeros((0, self._loaded().identity().dimension), np.float32)
        return np.stack([known[text] for text in texts])

    def _loaded(self) -> SentenceEncoder:
        if self._model is None:
            self._model = SentenceEncoder(self.name)
        return self._model

    @cached_property
    def _folder(self) -> Path | None:
        folder = locate_verified(self.name)
        if folder is None:
            self._loaded()  # downloads it, if a hub can be reached
            folder = locate_verified(self.name)
        return folder

    @cached_property
    def _store(self) -> Store | None:
        cache = cache_folder()
        if cache is None or self._folder is None:
            return None
        try:
            fingerprint = folder_fingerprint(self._folder)
        except OSError as error:
            _LOG.warning("encoder %s is not cached: %s", self.name, error)
            return None
        return Store(cache / f"{column_stem(self.name)[-60:]}-{fingerprint[:16]}.sqlite", fingerprint)


class Store:
    """Embeddings by text in one SQLite file; a failure logs a warning and returns nothing."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self._salt = f"{RECIPE} {fingerprint} ".encode()
        self._usable = True

    def get(self, texts: Sequence[str]) -> dict[str, Embeddings]:
        """The embeddings ``(d,)`` of those texts that are stored."""
        by_key = {self._key(text): text for text in texts}
        keys = list(by_key)

        def look_up(database: sqlite3.Connection) -> dict[str, Embeddings]:
            found = {}
            for start in range(0, len(keys), PORTION):
                some = keys[start : start + PORTION]
                query = f"SELECT key, vector, checksum FROM embeddings WHERE key IN ({', '.join('?' * len(some))})"
                for key, raw, checksum in database.execute(query, some):
                    if isinstance(raw, bytes) and _checksum(key, raw) == checksum:
                        found[by_key[key]] = np.frombuffer(raw, "<f4").astype(np.float32)
            return found

        return self._with(look_up) or {}

    def put(self, texts: Sequence[str], embeddings: Embeddings) -> None:
        rows = []
        for text, vector in zip(texts, embeddings, strict=True):
            key, raw = self._key(text), np.ascontiguousarray(vector, "<f4").tobytes()
            rows.append((key, raw, _checksum(key, raw)))

        def write(database: sqlite3.Connection) -> None:
            with database:  # one transaction
                database.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)

        self._with(write)

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(self._salt + text.encode(errors="surrogatepass")).digest()

    def _with(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run a function on the database; None where that fails, after one warning."""
        if not self._usable:
            return None
        try:
            self._make()
            return self._patiently(work)
        except sqlite3.OperationalError as error:  # locked, full, read-only: nothing is wrong with the file
            self._stop_using(error)
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
        except (sqlite3.Error, OSError) as error:
            self._stop_using(error)
        return None

    def _patiently(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on the database, again while another process has it locked.

        SQLite's own timeout does not cover everything: the switch to WAL, and the moment when another process closes
        the last connection, report "locked" at once. Both kinds of work may be repeated.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as database:
                    database.execute("PRAGMA journal_mode = WAL")  # readers do not wait for a writer
                    database.execute(TABLE)
                    return work(database)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def _stop_using(self, error: Exception) -> None:
        self._usable = False
        _LOG.warning("encoder cache %s is not used (%s); texts are encoded again", self.path, error)

    def _make(self) -> None:
        """Create the file, readable by its owner alone; SQLite gives its -wal and -shm files the same permissions."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE))

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        aside = self.path.with_suffix(".damaged")
        try:
            for companion in ("-wal", "-shm"):
                self.path.with_name(self.path.name + companion).unlink(missing_ok=True)
            self.path.replace(aside)
        except OSError as refused:
            self._stop_using(refused)
        else:
            _LOG.warning("encoder cache %s is damaged (%s); it was set aside as %s", self.path, error, aside.name)


def _counted(watch: Watch | None, before: int, total: int) -> Watch | None:
    """A progress callback for one portion that reports progress over all texts."""
    return None if watch is None else lambda done, _: watch(before + done, total)


def cache_folder() -> Path | None:
    """The cache folder: $FEDROUTER_CACHE, or the user's own; None if the variable is ``off``."""
    chosen = os.environ.get("FEDROUTER_CACHE", "")
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "fedrouter"
    except RuntimeError:  # no home folder
        return None


def _checksum(key: bytes, raw: bytes) -> int:
    """A checksum per row, because SQLite detects a damaged page only if its structure is broken."""
    return zlib.crc32(raw, zlib.crc32(key))
