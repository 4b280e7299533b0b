"""Text to embedding beside the event loop: one worker thread, asks in small batches, a cache by hash of the ask."""

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
MOST_WAITING = 256
"""Asks that may wait for the encoder; beyond that it counts as late at once, so that a flood is not queued up."""


class EncoderLate(Exception):
    """No embedding within the time there was."""


class EncoderFailed(Exception):
    """The encoder raised an error; its text is not repeated, since a prompt may be in it."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    digest: bytes
    text: str
    done: asyncio.Future[Embeddings]


class Embedder:
    """Embeddings ``(d,)`` float32; made inside the running loop.

    An ask that comes twice at once is encoded once, and one whose caller gave up still lands in the cache.
    """

    def __init__(self, encode: Encode, timeout: float, cache_size: int) -> None:
        self._encode, self._timeout, self._cache_size = encode, timeout, cache_size
        self._loop = asyncio.get_running_loop()
        self._cache: OrderedDict[bytes, Embeddings] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Future[Embeddings]] = {}
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self.hits = self.misses = self.late = self.failed = 0
        self._thread = threading.Thread(target=self._run, name="fedrouter-encoder", daemon=True)
        self._thread.start()

    def cached(self, digest: bytes) -> Embeddings | None:
        found = self._cache.get(digest)
        if found is not None:
            self._cache.move_to_end(digest)
            self.hits += 1
        return found

    def peek(self, digest: bytes) -> Embeddings | None:
        """Like :meth:`cached`, for who does not count as a use."""
        return self._cache.get(digest)

    def begin(self, digest: bytes, text: str) -> asyncio.Future[Embeddings] | None:
        """Have an ask encoded without waiting for it; None if too many wait already."""
        if digest in self._cache:
            return None
        under_way = self._under_way.get(digest)
        if under_way is not None:
            return under_way
        if len(self._under_way) >= MOST_WAITING:
            return None
        future: asyncio.Future[Embeddings] = self._loop.create_future()
        future.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # heard by nobody is fine
        self._under_way[digest] = future
        self._queue.put(_Waiting(digest, text, future))
        return future

    async def embed(self, digest: bytes, text: str) -> Embeddings:
        """The embedding of an ask that is not in the cache, or :class:`EncoderLate`, :class:`EncoderFailed`."""
        self.misses += 1
        future = self.begin(digest, text)
        if future is None:
            self.late += 1
            raise EncoderLate
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.shield(future)
        except TimeoutError:
            self.late += 1
            raise EncoderLate from None

    def close(self) -> None:
        self._queue.put(None)

    def _settle(self, batch: list[_Waiting], found: Sequence[Embeddings | None]) -> None:
        """On the loop's thread."""
        for waiting, embedding in zip(batch, found, strict=True):
            del self._under_way[waiting.digest]
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
            except RuntimeError:  # the loop is closed: nobody is left to hear
                return

    def _encoded(self, texts: list[str]) -> Sequence[Embeddings | None]:
        """Embeddings; an ask that the encoder fails on does not take the others down with it."""
        try:
            return list(self._encode(texts))
        except Exception as error:
            if len(texts) > 1:
                return [self._encoded([text])[0] for text in texts]
            # An error of our own says what to install or to change; any other may quote the text.
            LOG.error("the encoder failed: %s", error if isinstance(error, FedrouterError) else type(error).__name__)
            return [None]
