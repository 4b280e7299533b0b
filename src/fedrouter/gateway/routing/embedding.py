"""Prompt embeddings: small batches off the event loop, and a cache; short prompts at once where the encoder is fast.

A fast encoder takes less time than two threads of one interpreter lose to each other, so it encodes short prompts on
the event loop. Everything else is encoded by a thread: first what a request waits for, then what is only wanted for the
log. What nobody wants any more, because its request has ended, is not encoded at all.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from fedrouter.encoders import EncoderIdentity
from fedrouter.encoders.registry import open_encoder
from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Embeddings

LOG = logging.getLogger("fedrouter.gateway")
Encode = Callable[[Sequence[str]], Embeddings]
BATCH = 16
MAX_WAITING = 256
"""Prompts that may wait for the encoder; further ones time out at once, so that overload does not build a queue."""


class EncoderFailed(Exception):
    """The encoder raised an error; its message is not repeated, because it may quote a prompt."""


def opened_on_use(backend: str, identity: EncoderIdentity, loaded: Callable[[EncoderIdentity], None]) -> Encode:
    """The encoder with this name, loaded on the thread that first uses it; ``loaded`` is told which one it is."""

    @cache
    def encoder() -> Encode:
        found = open_encoder(identity.name, backend)
        identity.require(found.identity(), "the gateway's router")
        loaded(found.identity())
        return found.encode

    return lambda texts: encoder()(texts)


class Claim:
    """One request's interest in an embedding, until it is released."""

    def __init__(self, entry: _Entry) -> None:
        self._entry: _Entry | None = entry
        entry.claims += 1

    def release(self) -> None:
        """The request has ended; a second call does nothing."""
        if self._entry is not None:
            self._entry.claims -= 1
            self._entry = None


class _Entry:
    """A prompt that is not encoded yet: requests that wait for it, and those that want it at least for the log."""

    __slots__ = ("claims", "digest", "done", "text", "waiting")

    def __init__(self, digest: bytes, text: str, done: asyncio.Future[Embeddings]) -> None:
        self.digest, self.text, self.done = digest, text, done
        self.claims = self.waiting = 0


class Embedder:
    """Computes and caches embeddings ``(d,)`` float32; must be created inside the running event loop.

    Digests say which prompts are equal: those that arrive together are encoded once, and later ones come from the
    cache. So a digest must contain whose prompt it is, where one client may not learn what another has asked.
    """

    def __init__(
        self,
        encode: Encode,
        timeout: float,
        cache_size: int,
        at_once: int = 0,
    ) -> None:
        """``at_once``: the characters of the longest prompt that is encoded on the event loop, once it can be."""
        self._encode, self._timeout, self._cache_size = encode, timeout, cache_size
        self._at_once, self._loaded = at_once, False
        self._loop = asyncio.get_running_loop()
        self._cache: OrderedDict[bytes, Embeddings] = OrderedDict()
        self._pending: dict[bytes, _Entry] = {}
        self._first: deque[_Entry] = deque()
        self._later: deque[_Entry] = deque()
        self._busy = self._scheduled = False
        self._batches: queue.SimpleQueue[list[_Entry] | None] = queue.SimpleQueue()
        self.hits = self.misses = self.late = self.left = self.failed = 0
        self._thread = threading.Thread(target=self._run, name="fedrouter-encoder", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Prompts that wait for the encoder."""
        return len(self._pending)

    def cached(self, digest: bytes) -> Embeddings | None:
        """The embedding of a prompt if it is in the cache; counts as a use."""
        found = self._cache.get(digest)
        if found is not None:
            self._cache.move_to_end(digest)
            self.hits += 1
        return found

    def peek(self, digest: bytes) -> Embeddings | None:
        """Like :meth:`cached`, but does not count as a use."""
        return self._cache.get(digest)

    def want(self, digest: bytes, text: str) -> Claim | None:
        """Encode a prompt for the log, when there is time and unless the claim is released before.

        None if it is cached or too many are waiting.
        """
        entry = self._entry(digest, text, self._later)
        return None if entry is None else Claim(entry)

    async def first(self, text: str) -> None:
        """Encode a text, however long it takes, so that the encoder is loaded; :class:`EncoderFailed` if it fails."""
        entry = self._entry(b"", text, self._first)
        assert entry is not None
        claim = Claim(entry)
        entry.waiting += 1
        try:
            await asyncio.shield(entry.done)
        finally:
            entry.waiting -= 1
            claim.release()
        self._loaded = True

    async def embed(
        self, digest: bytes, text: str, interrupted: asyncio.Future[str] | None = None
    ) -> tuple[Embeddings | None, Claim | None]:
        """Encode a prompt that is not in the cache; raises :class:`EncoderFailed`.

        None instead of the embedding if it did not come in time or the request was interrupted. Then the claim keeps
        it wanted for the log, until it is released.
        """
        self.misses += 1
        if self._loaded and len(text) <= self._at_once:
            return self._encoded_now(digest, text), None
        entry = self._entry(digest, text, self._first)
        if entry is None:
            self.late += 1
            return None, None
        claim = Claim(entry)
        entry.waiting += 1
        awaited: set[asyncio.Future[Any]] = {entry.done} if interrupted is None else {entry.done, interrupted}
        try:
            await asyncio.wait(awaited, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            claim.release()
            raise
        finally:
            entry.waiting -= 1
        if not entry.done.done():
            if interrupted is not None and interrupted.done():
                self.left += 1
                return None, claim
            self.late += 1
            return None, claim
        claim.release()
        return entry.done.result(), None

    def close(self) -> None:
        self._batches.put(None)

    def _encoded_now(self, digest: bytes, text: str) -> Embeddings:
        """The embedding, made on the event loop."""
        [embedding] = self._encoded([text])
        if embedding is None:
            self.failed += 1
            raise EncoderFailed
        self._keep(digest, embedding)
        return embedding

    def _keep(self, digest: bytes, embedding: Embeddings) -> None:
        self._cache[digest] = embedding
        if len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)

    def _entry(self, digest: bytes, text: str, line: deque[_Entry]) -> _Entry | None:
        """The pending entry of a prompt, put into a line if it is new; None if it is cached or there is no room."""
        if digest in self._cache:
            return None
        entry = self._pending.get(digest)
        if entry is None:
            if len(self._pending) >= MAX_WAITING and not self._dropped_one():
                return None
            future: asyncio.Future[Embeddings] = self._loop.create_future()
            # Retrieved, so that asyncio does not warn.
            future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            entry = self._pending[digest] = _Entry(digest, text, future)
            line.append(entry)
        elif line is self._first and not entry.waiting:
            line.append(entry)  # it may stand in the other line too; whichever comes first counts
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_batch)
        return entry

    def _dropped_one(self) -> bool:
        """Make room: drop an entry that no request waits for, the oldest first."""
        for line in (self._first, self._later):
            for entry in [entry for entry in line if not entry.waiting]:
                line.remove(entry)
                if self._pending.get(entry.digest) is entry:
                    self._drop(entry)
                    return True
        return False

    def _drop(self, entry: _Entry) -> None:
        del self._pending[entry.digest]
        entry.done.cancel()

    def _next_batch(self) -> None:
        """Give the thread what is wanted most, unless it has a batch."""
        self._scheduled = False
        if self._busy:
            return
        batch: list[_Entry] = []
        while self._first and len(batch) < BATCH:
            entry = self._first.popleft()
            if self._alive(entry):
                if not entry.waiting:
                    self._later.append(entry)
                elif entry not in batch:
                    batch.append(entry)
        while self._later and len(batch) < BATCH:
            entry = self._later.popleft()
            if self._alive(entry) and entry not in batch:
                batch.append(entry)
        if batch:
            self._busy = True
            self._batches.put(batch)

    def _alive(self, entry: _Entry) -> bool:
        """Whether an entry is still to be encoded; one that nobody wants is dropped."""
        if self._pending.get(entry.digest) is not entry:
            return False
        if not entry.claims:
            self._drop(entry)
            return False
        return True

    def _settle(self, batch: list[_Entry], found: Sequence[Embeddings | None]) -> None:
        """Store results and wake the waiting requests; runs on the event loop's thread."""
        for entry, embedding in zip(batch, found, strict=True):
            if self._pending.get(entry.digest) is entry:
                del self._pending[entry.digest]
            if embedding is None:
                self.failed += 1
            else:
                self._keep(entry.digest, embedding)
            if entry.done.done():
                continue
            if embedding is None:
                entry.done.set_exception(EncoderFailed())
            else:
                entry.done.set_result(embedding)
        self._busy = False
        self._next_batch()

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._loop.call_soon_threadsafe(self._settle, batch, self._encoded([each.text for each in batch]))
            except RuntimeError:  # the event loop is closed
                return

    def _encoded(self, texts: list[str]) -> Sequence[Embeddings | None]:
        """Encode a batch; if that fails, encode one by one, so that one bad prompt does not fail the others."""
        try:
            found = self._encode(texts)
        except Exception as error:
            if len(texts) > 1:
                return [self._encoded([text])[0] for text in texts]
            # Only this project's own errors are known not to quote a prompt.
            LOG.error("the encoder failed: %s", error if isinstance(error, FedrouterError) else type(error).__name__)
            return [None]
        # Routers take it for a query like any other, and nothing can be learned from a log that has such a row.
        finite = [bool(np.isfinite(row).all()) for row in found]
        if not all(finite):
            LOG.error("the encoder failed: an embedding has numbers that are not finite")
        return [row if good else None for row, good in zip(found, finite, strict=True)]
