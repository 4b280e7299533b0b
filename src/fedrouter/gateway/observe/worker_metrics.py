"""Metrics of the workers of one gateway: each writes its own into a file every second, and any can show them all.

Counters of a worker that ended are kept, so that no sum ever falls: the supervisor adds them to one more file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from fedrouter.gateway.observe.metrics import Metrics, Snapshot

LOG = logging.getLogger("fedrouter.gateway")
EVERY = 1.0
ENDED = "ended.json"


class WorkerMetrics:
    """The metrics of one worker in a folder that all of them share; ``name`` is its own among them."""

    def __init__(self, folder: Path, name: str, metrics: Metrics) -> None:
        self._folder, self._path, self._metrics = folder, folder / f"{name}.json", metrics
        metrics.others = self._others

    async def run(self) -> None:
        """Write what was counted, for ever."""
        while True:
            self.write()
            await asyncio.sleep(EVERY)

    def write(self) -> None:
        self._write(self._metrics.snapshot())

    def end(self) -> None:
        """Write what was counted for the last time, after the event loop has ended."""
        self._write(self._metrics.counted())

    def _write(self, found: Snapshot) -> None:
        try:
            _put(self._path, found.to_json())
        except OSError as error:
            LOG.error("%s: metrics of this worker cannot be written (%s)", self._path, error.strerror)

    def _others(self) -> Iterator[Snapshot]:
        ended, counted = _ended(self._folder)
        yield ended
        for path in self._folder.glob("*.json"):
            if path.name != ENDED and path != self._path and path.name not in counted:
                found = _read(path)
                if found is not None:
                    yield Snapshot.of_json(found)


def keep_ended(folder: Path, name: str) -> None:
    """Add what a worker that has ended has counted to what those before it have."""
    path = folder / f"{name}.json"
    found = _read(path)
    if found is None:
        return
    ended, counted = _ended(folder)
    ended.add(Snapshot.of_json(found | {"gauges": []}))
    _put(folder / ENDED, ended.to_json() | {"counted": sorted({*counted, path.name})})
    path.unlink(missing_ok=True)


def _ended(folder: Path) -> tuple[Snapshot, frozenset[str]]:
    """The sums of ended workers, and the names of the files that are in them."""
    found = _read(folder / ENDED)
    return (Snapshot(), frozenset()) if found is None else (Snapshot.of_json(found), frozenset(found["counted"]))


def _put(path: Path, content: dict[str, Any]) -> None:
    """Replace a file as a whole; it need not survive a crash, so it is not flushed to disk."""
    scratch = path.with_suffix(".new")
    scratch.write_bytes(orjson.dumps(content))
    scratch.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:  # removed meanwhile
        return None
    return found
