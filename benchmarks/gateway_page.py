"""docs/results/gateway.md, from what benchmarks/gateway.py measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from traffic import Measured

ROWS = {
    "upstream": "the upstream, asked directly",
    "routed": "**fedrouter**, routed",
    "named": "fedrouter, model named",
    "litellm": "LiteLLM",
}
MIN_RATIO, MAX_ADDED = 10.0, 3.0
"""The targets: LiteLLM's requests per second at 32 connections times this, and milliseconds added at 1."""
Of = Callable[[Measured], float]


@dataclass(frozen=True)
class Server:
    """Seconds until a server listens and until it is ready, megabytes idle and after the run.

    ``first`` is the median of milliseconds that a request takes whose text has to be encoded.
    """

    listens: float
    ready: float
    idle: float
    after: float
    first: float = 0.0


@dataclass(frozen=True)
class Page:
    """Everything of a run; a cell is one measurement a round, by server, concurrency and whether it streamed."""

    cells: Mapping[tuple[str, int, bool], list[Measured]]
    servers: Mapping[str, Server]
    reasons: Mapping[str, int]
    logged: int
    prompts: int
    others: float
    load: float
    seconds: float
    rounds: int
    versions: Mapping[str, str]

    def text(self) -> str:
        """The page; every ratio and difference is taken within a round, then the median over rounds."""
        gateway, light = self.servers["fedrouter"], self.servers["onnx"]
        ratio, more = self.ratio("routed", 32), self.added("routed", 1, lambda found: found.p50)
        theirs = self.added("litellm", 1, lambda found: found.p50)
        lines = [
            *self._setting(),
            "## Answers",
            "",
            "Requests per second at 1, 8, 32 and 128 connections; in parentheses the milliseconds added to the "
            "upstream's own latency (first row: that latency), p50 / p99. Start: until it listens / until ready, for "
            "the gateway with its encoder loaded. Memory: resident, idle / after the run.",
            "",
            *self._table(False),
            "",
            f"- At 32, routed, **{ratio:.1f} times** LiteLLM's requests per second (target: at least {MIN_RATIO:g}; "
            f"{'met' if ratio >= MIN_RATIO else 'missed'}).",
            f"- At 1, routed on a cached embedding, **{more:.2f} ms** added (target: under {MAX_ADDED:g}; "
            f"{'met' if more < MAX_ADDED else 'missed'}); LiteLLM adds {theirs:.1f} ms.",
            f"- A text that is not in the cache must be encoded: such a request takes {gateway.first:.1f} ms in all "
            f"with torch, {light.first:.1f} ms with ONNX (medians over {self.prompts} short prompts, one at a time; "
            "[encoders](encoder.md) measures them separately).",
            "",
            "## Streams",
            "",
            "Streams of 23 events that the upstream sends immediately. In parentheses the milliseconds added to the "
            "time to "
            "the first event, p50, and to the whole stream, p99.",
            "",
            *self._table(True),
        ]
        return "\n".join(lines) + "\n"

    def ratio(self, name: str, concurrency: int, streamed: bool = False) -> float:
        """Times LiteLLM's requests a second."""
        pairs = zip(self.cells[name, concurrency, streamed], self.cells["litellm", concurrency, streamed], strict=True)
        return median(ours.rate / theirs.rate for ours, theirs in pairs)

    def added(self, name: str, concurrency: int, of: Of, streamed: bool = False) -> float:
        """Milliseconds more than the upstream takes by itself; for the upstream, what it takes."""
        through, direct = self.cells[name, concurrency, streamed], self.cells["upstream", concurrency, streamed]
        return median(of(a) - (of(b) if a is not b else 0.0) for a, b in zip(through, direct, strict=True))

    def _setting(self) -> list[str]:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        shares = [found.busy for measured in self.cells.values() for found in measured]
        reasons = ", ".join(f"`{reason}` {count:,}" for reason, count in self.reasons.items())
        return [
            "# The gateway's speed",
            "",
            "    .venv/bin/python benchmarks/gateway.py",
            "",
            f"{versions}; one process with one worker each, as their own commands start them, on {os.cpu_count()} "
            f"cores, of which other programs took {self.others:.2f} during the run (load average before it: "
            f"{self.load:.1f}). The upstream answers immediately from a separate process on localhost. The load "
            "generator is another process, with raw sockets: a connection sends a request, waits for the whole "
            "answer, and repeats; it used at most "
            f"{max(shares):.0%} of a core, and the first row is its ceiling. Each cell is measured for "
            f"{self.seconds:g} s after a second of warm-up, one server after the other, in "
            f"{self.rounds} rounds; ratios and differences are taken within a round; medians over rounds. Every "
            "answer had status 200.",
            "",
            "Routed, the gateway checks a key, reads the prompt, takes its embedding from the cache (the "
            f"{self.prompts} prompts were sent once before), estimates five models with the demo's `kmeans` router, "
            "forwards, and commits a row to its SQLite log before the answer ends. With a named model nothing is "
            f"estimated; the rest is the same. Its log holds {self.logged:,} answered requests, none missing, for the "
            f"reasons {reasons}. LiteLLM checks its master key and forwards; it has one model and no database.",
            "",
        ]

    def _table(self, streamed: bool) -> list[str]:
        concurrencies = sorted({concurrency for _, concurrency, kind in self.cells if kind == streamed})
        about = [] if streamed else ["start, s", "memory, MB"]
        lines = [f"| {' | '.join(['', *about, *map(str, concurrencies)])} |"]
        lines.append("|---|" + "---|" * (len(about) + len(concurrencies)))
        middle: Of = (lambda found: found.first_p50) if streamed else (lambda found: found.p50)
        for name, shown in ROWS.items():
            cells = [] if streamed else self._start({"routed": "fedrouter", "litellm": "litellm"}.get(name))
            for each in concurrencies:
                rate = median(found.rate for found in self.cells[name, each, streamed])
                p50, p99 = (self.added(name, each, of, streamed) for of in (middle, lambda found: found.p99))
                cells.append(f"{rate:,.0f} ({p50:.2f} / {p99:.2f})")
            lines.append(f"| {' | '.join([shown, *cells])} |")
        if not streamed:
            cells = [*self._start("onnx"), *[""] * len(concurrencies)]
            lines.append(f"| {' | '.join(['fedrouter with the ONNX encoder', *cells])} |")
        for name in ("routed", "named"):
            ratios = [f"**{self.ratio(name, each, streamed):.1f}**" for each in concurrencies]
            lines.append(f"| {' | '.join([f'LiteLLM = 1: {name}', *[''] * len(about), *ratios])} |")
        return lines

    def _start(self, name: str | None) -> list[str]:
        if name is None:
            return ["", ""]
        server = self.servers[name]
        return [f"{server.listens:.1f} / {server.ready:.1f}", f"{server.idle:.0f} / {server.after:.0f}"]
