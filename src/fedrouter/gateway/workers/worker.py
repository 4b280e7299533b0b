"""What a worker process is told by its supervisor, in its environment, and what it reports back."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

VARIABLE = "FEDROUTER_WORKER"


@dataclass(frozen=True)
class Worker:
    """One of ``count`` workers; ``listening`` and ``channel`` are file descriptors of sockets that it inherits.

    ``folder`` is where all of them put their metrics, each under its ``name``.
    """

    index: int
    count: int
    name: str
    listening: int
    channel: int
    folder: str

    @property
    def metrics_folder(self) -> Path:
        return Path(self.folder)

    def environment(self) -> dict[str, str]:
        """The environment variable from which the process knows what it is."""
        return {VARIABLE: json.dumps(asdict(self))}

    def report(self, key: str | None) -> None:
        """Tell the supervisor that this worker is ready, and the first API key, if it created it."""
        os.write(self.channel, json.dumps({"key": key}).encode() + b"\n")

    def watch_supervisor(self, ended: Callable[[], None]) -> None:
        """Call ``ended`` when the supervisor is no more: nobody would stop this worker otherwise."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            if not os.read(self.channel, 1):
                loop.remove_reader(self.channel)
                ended()

        loop.add_reader(self.channel, look)


@cache
def current_worker() -> Worker | None:
    """The worker that this process is; None if it has no supervisor."""
    told = os.environ.pop(VARIABLE, None)  # not for the processes that this one starts
    return None if told is None else Worker(**json.loads(told))
