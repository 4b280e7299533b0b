"""How a run goes, as lines of JSON that one process writes and others follow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedrouter.federation.federation import Progress

FILE = "progress.jsonl"
OVER = ("done", "failed")
"""Events after which nothing follows."""


class ProgressLog:
    """Appends to a run's ``progress.jsonl``. What a run that goes on after a crash tells again is not written again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        if self._path.exists():
            # A kill in the middle of a line leaves a part of it.
            os.truncate(self._path, _whole(self._path.read_bytes()))
        self._told = {(line["stage"], line["step"]) for line in Tail(folder).news() if line["event"] == "step"}
        self._missing: dict[str, dict[str, str]] = {}

    def write(self, event: str, **what: Any) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **what}
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "a") as file:
            file.write(json.dumps(line) + "\n")

    def dropped(self, client: str, verb: str, reason: str) -> None:
        """Who did not answer, or whose answer does not count; told at once and with the step it belongs to."""
        self._missing.setdefault(client, {})[verb] = reason
        self.write("dropped", client=client, verb=verb, reason=reason)

    def step(self, progress: Progress) -> None:
        missing, self._missing = self._missing, {}
        if (progress.stage, progress.step) not in self._told:
            self.write(
                "step",
                stage=progress.stage,
                step=progress.step,
                steps=progress.steps,
                answered=[name for name in progress.clients if name not in missing],
                missing=missing,
                metrics={name: float(value) for name, value in progress.metrics.items()},
            )


class Tail:
    """Follows a run's progress; what is there already is skipped on request."""

    def __init__(self, folder: Path, from_end: bool = False) -> None:
        self._path = folder / FILE
        self._place = _whole(self._path.read_bytes()) if from_end and self._path.exists() else 0

    def news(self) -> list[Mapping[str, Any]]:
        """The lines since the last look; one that is still being written is left for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: _whole(content)]
        self._place += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def _whole(content: bytes) -> int:
    """Bytes up to the end of the last line that is complete."""
    return content.rfind(b"\n") + 1
