"""How `fedrouter federation run` shows a run's progress: every exchange and step, with an estimate of the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Voice


@dataclass
class ShownProgress:
    """Prints the lines of a run's progress and keeps its steps.

    ``usual`` is the number of exchanges that the last run of this kind took; without it the rest is estimated from
    the steps.
    """

    voice: Voice
    usual: int | None = None
    now: Callable[[], float] = time.monotonic
    steps: list[Mapping[str, Any]] = field(default_factory=list)
    _began: float = field(init=False)
    _end: float | None = None

    def __post_init__(self) -> None:
        self._began = self.now()

    def show(self, line: Mapping[str, Any]) -> None:
        """Print one line of progress."""
        if line["event"] == "start":
            models = f"{len(line['models'])} models, {plain(line['encoder'])}"
            self.voice.say(f"Taking part: {', '.join(line['clients'])}; {models}")
        elif line["event"] == "waiting":
            names = listed([plain(name) for name in line["clients"]])
            self.voice.say(f"Waiting up to {duration(line['seconds'] - 1)} for {names} to connect")
        elif line["event"] == "late":
            names = listed([plain(name) for name in line["clients"]])
            self.voice.say(f"Still waiting for {names}, {duration(line['seconds'])} more at most")
        elif line["event"] == "note":
            self.voice.warn(plain(line["text"]))
        elif line["event"] == "left out":
            named = ", ".join(f"{plain(model)} ({plain(client)})" for model, client in line["models"].items())
            self.voice.warn(f"Left out, because only one client has evaluations of it: {named}; --models includes it")
        elif line["event"] == "dropped":
            self.voice.warn(f"{plain(line['client'])} is left out of {plain(line['verb'])}: {plain(line['reason'])}")
        elif line["event"] == "withheld":
            self.voice.say(f"{plain(line['client'])} withholds {plain(line['verb'])}: {plain(line['reason'])}")
        elif line["event"] == "connection":
            self.voice.warn(f"the coordinator {'is back' if line['connected'] else 'does not answer; waiting for it'}")
        elif line["event"] == "exchange":
            self._exchange(line)
        elif line["event"] == "step":
            self._step(line)

    def _exchange(self, line: Mapping[str, Any]) -> None:
        number, now = line["number"], self.now()
        if self.usual is not None and number < self.usual:
            self._end = now + (now - self._began) / number * (self.usual - number)
        rest = f", about {duration(self._end - now)} left" if self._end is not None and self._end > now else ""
        of = f" of about {self.usual}" if self.usual is not None and number <= self.usual else ""
        answered = f"{line['answered']} of {line['asked']} answered in {line['seconds']:.1f} s"
        self.voice.say(f"exchange {number}{of}   {plain(', '.join(line['verbs']))}: {answered}{rest}")

    def _step(self, line: Mapping[str, Any]) -> None:
        self.steps.append({name: line[name] for name in ("stage", "step", "steps", "answered", "missing", "metrics")})
        if self.usual is None:
            now = self.now()
            self._end = now + (now - self._began) * (line["steps"] - line["step"]) / line["step"]
        measured = "".join(f"   {name} {value:.4f}" for name, value in line["metrics"].items())
        answered = f"   {listed(line['answered'])} answered" if line["answered"] else ""
        self.voice.say(f"{plain(line['stage'])} {line['step']}/{line['steps']}{answered}{measured}")


def duration(seconds: float) -> str:
    """A time in words, as precise as an estimate can be.

    >>> duration(7.2), duration(200)
    ('8 s', '4 min')
    """
    return f"{int(seconds) + 1} s" if seconds < 90 else f"{int(seconds / 60) + 1} min"


def listed(names: list[str]) -> str:
    """Names, or their number if a line has no room for them."""
    return ", ".join(names) if len(names) <= 5 else f"{len(names)} clients"
