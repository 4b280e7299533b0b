"""A client's private record of what it refused and why, and of what the coordinator did not use.

The coordinator learns one word of a refusal. The rest is here, in ``refusals.jsonl`` of the client's state directory.
Only texts that this package writes about requests are kept: an error about the evaluations could quote one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedrouter.errors import BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.verbs.excluded import ExcludedRequest
from fedrouter.federation.verbs.masked import MaskedRequest, MaskedVector
from fedrouter.files import append_to, set_aside

MOST_BYTES = 1_000_000
"""Size at which the file is set aside as ``refusals.jsonl.old``; the one before is overwritten."""
WITHHELD = "withheld: it was answered, from the same rows, in a cohort that differs by fewer clients than cohort_gap"
UNSAID = "its text may quote evaluations and is not kept; start the client again, which reads them and says more"


@dataclass(frozen=True)
class RefusalLog:
    """Appends to the file, one JSON object a line, and reads its end."""

    path: Path

    def refused(self, verb: str, error: BaseException) -> None:
        """Record an error instead of an answer."""
        why = str(error) if isinstance(error, Refused | BadMessage) else UNSAID
        self._write({"event": "refused", "verb": verb, "error": type(error).__name__, "why": why})

    def excluded(self, verb: str, reason: str) -> None:
        """Record that the coordinator did not use an answer."""
        self._write({"event": "excluded", "verb": verb, "why": reason})

    def last(self, count: int) -> list[Mapping[str, Any]]:
        """The last entries, oldest first; a line that a crash cut short is left out."""
        try:
            lines = self.path.read_bytes().splitlines()[-count:]
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def _write(self, entry: Mapping[str, Any]) -> None:
        set_aside(self.path, MOST_BYTES)
        time = datetime.now(UTC).isoformat(timespec="seconds")
        with append_to(self.path) as file:
            file.write(json.dumps({"time": time, **entry}) + "\n")


class RecordingClient(Client):
    """A client that records what it refuses, and what the coordinator did not use."""

    def __init__(self, refusals: RefusalLog, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._refusals = refusals

    def answer(self, verb: str, request: Request[Reply], hidden: int = 0) -> Reply:
        try:
            reply = super().answer(verb, request, hidden)
        except Exception as error:
            if not hidden:  # a hidden answer is part of another one, which is recorded
                self._refusals.refused(verb, error)
            raise
        if isinstance(request, MaskedRequest) and isinstance(reply, MaskedVector):
            for question in reply.withholds:
                self._refusals.refused(request.verbs[question], Refused(WITHHELD, "secure_sum"))
        if isinstance(request, ExcludedRequest):
            self._refusals.excluded(request.question, request.reason)
        return reply
