"""Prompt embeddings off the event loop: one worker thread, small batches, and a cache by the hash of the prompt."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Embeddings

LOG = logging.getLogger("fedrouter.gateway")
Encode = Callable[[Sequence[str]], Embeddings]
BATCH = 16
MAX_WAITING = 256
"""Prompts that may wait for the encoder; further ones time out at once, so that overload does not build a queue."""


class EncoderTimeout(Exception):
    """The encoder did not return an embedding in time."""


class EncoderFailed(Exception):
    """The encoder raised an error; its message is not repeated, because it may quote a prompt."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    digest: bytes
    text: str
    done: asyncio.Future[Embeddings]


class Embedder:
    """Computes and caches embeddings ``(d,)`` float32; must be created inside the running event loop.

    Equal prompts that arrive together are encoded once. A prompt whose request timed out still enters the cache.
    """

    def __init__(self, encode: Encode, timeout: float, cache_size: int) -> None:
        self._encode, self._timeout, self._cache_size = encode, timeout, cache_size
        self._loop = asyncio.get_running_loop()
        self._cache: OrderedDict[bytes, Embeddings] = OrderedDict()
        self._pending: dict[bytes, asyncio.Future[Embeddings]] = {}
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self.hits = self.misses = self.late = self.failed = 0
        self._thread = threading.Thread(target=self._run, name="fedrouter-encoder", daemon=True)
        self._thread.start()

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

    def begin(self, digest: bytes, text: str) -> asyncio.Future[Embeddings] | None:
        """Start encoding a prompt without waiting for it; None if it is cached or too many are waiting."""
        if digest in self._cache:
            return None
        pending = self._pending.get(digest)
        if pending is not None:
            return pending
        if len(self._pending) >= MAX_WAITING:
            return None
        future: asyncio.Future[Embeddings] = self._loop.create_future()
        future.add_done_callback(
            lambda done: None if done.cancelled() else done.exception()
        )  # retrieved, so that asyncio does not warn
        self._pending[digest] = future
        self._queue.put(_Waiting(digest, text, future))
        return future

    async def embed(self, digest: bytes, text: str) -> Embeddings:
        """Encode a prompt that is not in the cache; raises :class:`EncoderTimeout` or :class:`EncoderFailed`."""
        self.misses += 1
        future = self.begin(digest, text)
        if future is None:
            self.late += 1
            raise EncoderTimeout
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.shield(future)
        except TimeoutError:
            self.late += 1
            raise EncoderTimeout from None

    def close(self) -> None:
        self._queue.put(None)

    def _settle(self, batch: list[_Waiting], found: Sequence[Embeddings | None]) -> None:
        """Store results and wake the waiting requests; runs on the event loop's thread."""
        for waiting, embedding in zip(batch, found, strict=True):
            del self._pending[waiting.digest]
            if embedding is None:
                self.failed += 1
                waiting.done.set_exception(EncoderFailed())
                continue
            self._cache[waiting.digest] = embedding
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
            waiting.done.set_result(embedding)

    def _run(self) -> None:
        while (waiting := self._queue.get()) is not None:
            batch = [waiting]
            while len(batch) < BATCH:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._queue.put(None)
                    break
                batch.append(more)
            try:
                self._loop.call_soon_threadsafe(self._settle, batch, self._encoded([each.text for each in batch]))
            except RuntimeError:  # the event loop is closed
                return

    def _encoded(self, texts: list[str]) -> Sequence[Embeddings | None]:
        """Encode a batch; if that fails, encode one by one, so that one bad prompt does not fail the others."""
        try:
            return list(self._encode(texts))
        except Exception as error:
            if len(texts) > 1:
                return [self._encoded([text])[0] for text in texts]
            # Only this project's own errors are known not to quote a prompt.
            LOG.error("the encoder failed: %s", error if isinstance(error, FedrouterError) else type(error).__name__)
            return [None]
