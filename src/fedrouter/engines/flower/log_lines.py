"""What a SuperNode's log lines mean: Flower tells its parent process about the connection in no other way.

The texts are those of Flower 1.41.0 (``flwr/supernode/start_client_internal.py``, ``flwr/supercore/retry``); another
version may word them differently, which is one reason why :mod:`~fedrouter.engines.flower.version` insists on one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

REQUEST = "Receiving: query."


class Event(Enum):
    """Something that happened to a SuperNode; the value is the text by which its log line is recognized."""

    CONNECTED = "SuperNode ID:"
    REQUESTED = REQUEST
    KEY_REFUSED = "[code: 2004]"
    DISCONNECTED = "Connection attempt failed"
    RECONNECTED = "Connection successful after"


@dataclass(frozen=True)
class LogEvent:
    """An event and, for a request, its verb."""

    event: Event
    verb: str = ""


def parse(line: str) -> LogEvent | None:
    """The event that a log line reports, or None.

    >>> parse("INFO : Receiving: query.statistics message (ID: 7)").verb
    'statistics'
    """
    for event in Event:
        if event.value in line:
            verb = line.split(REQUEST)[1].split(" message")[0] if event is Event.REQUESTED else ""
            return LogEvent(event, verb)
    return None
