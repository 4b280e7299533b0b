"""Notices to clients whose answers are not used, so that their owners learn of it at their own machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from fedrouter.errors import FedrouterError
from fedrouter.federation.federation import Federation
from fedrouter.federation.middleware.validation import Report
from fedrouter.federation.verbs.excluded import MOST_REASON, ExcludedRequest

TIMEOUT = 10.0
"""Seconds that a notice may take; a client that is gone does not hold up a run."""


@dataclass
class Notices:
    """Collects rejected answers, which ``report`` hears of at once, and tells their clients when ``send`` is called."""

    federation: Federation
    report: Report
    _pending: dict[str, tuple[str, str]] = field(default_factory=dict)

    def rejected(self, client: str, verb: str, reason: str) -> None:
        """A client's answer was received and is not used; a callback."""
        self.report(client, verb, reason)
        self._pending[client] = (verb, reason)

    def send(self) -> None:
        """Tell every client with a rejected answer about the last one."""
        pending, self._pending = self._pending, {}
        for client, (verb, reason) in pending.items():
            line = "".join(letter if letter.isprintable() else " " for letter in reason)[:MOST_REASON]
            with suppress(FedrouterError):  # a notice that does not arrive is no reason to end a run
                self.federation.ask("excluded", ExcludedRequest(verb, line), [client])
