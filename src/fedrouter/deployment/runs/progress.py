"""Progress of a run as lines of JSON, which one process writes and others follow."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedrouter.federation.federation import Progress
from fedrouter.federation.verbs.verb import RULES
from fedrouter.files import append_to

FILE = "progress.jsonl"


class ProgressLog:
    """Appends to a run's ``progress.jsonl``. Steps that a resumed run repeats are not written again.

    ``on_event`` is called with each line that is written.
    """

    def __init__(self, folder: Path, on_event: Callable[[Mapping[str, Any]], None] = lambda line: None) -> None:
        self._path = folder / FILE
        self._on_event = on_event
        if self._path.exists():
            # A process killed while it wrote leaves part of a line.
            os.truncate(self._path, _complete(self._path.read_bytes()))
        self._written = {(line["stage"], line["step"]) for line in Tail(folder).lines() if line["event"] == "step"}
        self._missing: dict[str, dict[str, str]] = {}
        self._withheld: set[tuple[str, str, str]] = set()

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **fields}
        with append_to(self._path) as file:
            file.write(json.dumps(line) + "\n")
        self._on_event(line)

    def dropped(self, client: str, verb: str, reason: str) -> None:
        """Record a client whose reply is missing or invalid, at once and with the step that it belongs to."""
        self._missing.setdefault(client, {})[verb] = reason
        self.write("dropped", client=client, verb=verb, reason=reason)

    def late(self, clients: Sequence[str], seconds: float) -> None:
        """Record that an exchange waits for these clients, and for how long at most."""
        self.write("late", clients=list(clients), seconds=round(seconds, 1))

    def withheld(self, client: str, verb: str, rule: str) -> None:
        """Record, once, that a client's replies have nothing in them, and the rule that it names for that."""
        if (client, verb, rule) not in self._withheld:
            self._withheld.add((client, verb, rule))
            self.write("withheld", client=client, verb=verb, rule=rule, reason=RULES.get(rule, rule))

    def step(self, progress: Progress) -> None:
        """Record a step of learning; a callback."""
        missing, self._missing = self._missing, {}
        if (progress.stage, progress.step) not in self._written:
            self.write(
                "step",
                stage=progress.stage,
                step=progress.step,
                steps=progress.steps,
                answered=[name for name in progress.clients if name not in missing],
                missing=missing,
                metrics={name: float(value) for name, value in progress.metrics.items()},
            )
            for note in progress.notes:
                self.write("note", text=note)


class Tail:
    """Follows a run's progress, from the start or from the current end."""

    def __init__(self, folder: Path, from_end: bool = False) -> None:
        self._path = folder / FILE
        self._offset = _complete(self._path.read_bytes()) if from_end and self._path.exists() else 0

    def lines(self) -> list[Mapping[str, Any]]:
        """The lines added since the last call; an incomplete one is left for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        complete = content[: _complete(content)]
        self._offset += len(complete)
        return [json.loads(line) for line in complete.splitlines()]


def _complete(content: bytes) -> int:
    """Number of bytes up to the end of the last complete line."""
    return content.rfind(b"\n") + 1
