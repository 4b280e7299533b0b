"""The tables of out/gateway.md, from what benchmarks/gateway.py measured."""

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
    "portkey": "Portkey",
    "litellm": "LiteLLM",
}
STREAMS = "streams"
LONG = "unique 1,500"
MANY = {"cached": "embeddings cached", LONG: "unique prompts of 1,500 characters"}
"""Workloads that are measured with two workers each."""
TARGETS = {"portkey": 2.0, "litellm": 15.0}
"""Requests a second at 32 connections on unique prompts of 1,500 characters, as a multiple of each."""
MAX_ADDED = 3.0
"""Milliseconds that may be added to such a request at one connection."""
Of = Callable[[Measured], float]


def taking_part(workload: str) -> list[str]:
    """The servers that are measured with a workload."""
    return [name for name in ROWS if (name, workload) != ("portkey", STREAMS)]


@dataclass(frozen=True)
class Server:
    """Seconds until a server listens and until it is ready, megabytes idle and after the run."""

    listens: float
    ready: float
    idle: float
    after: float


@dataclass(frozen=True)
class Page:
    """Everything of a run; a cell is one measurement a round, by target, workload and concurrency."""

    cells: Mapping[tuple[str, str, int], list[Measured]]
    several: Mapping[tuple[str, str, int], list[Measured]]
    servers: Mapping[str, Server]
    asked: Mapping[str, Mapping[str, int]]
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
        lines = [
            *self._setting(),
            "## What was asked for",
            "",
            *(self._target(peer, least) for peer, least in TARGETS.items()),
            self._latency(),
            self._bound(),
            "",
            "",
            "## Start and memory",
            "",
            "Start: until it listens / until it answers, for the gateway with its encoder and router loaded. Memory: "
            "proportional (Pss: shared pages count once), idle / after the run.",
            "",
            "|  | start, s | memory, MB |",
            "|---|---|---|",
            *(self._start(name) for name in self.servers),
            "",
        ]
        lines += self._cpu()
        for workload, title in {
            "cached": f"## {self.prompts} short prompts, embeddings cached",
            "unique 100": "## Unique prompts of 100 characters",
            LONG: "## Unique prompts of 1,500 characters",
        }.items():
            lines += [title, "", *self._table(workload, lambda found: found.p50), "", *self._encoding(workload)]
        lines += [
            "## Streams",
            "",
            "Streams of 23 events that the upstream sends immediately, cached prompts. In parentheses the milliseconds "
            "added to the time to the first event, p50, and to the whole stream, p99. Portkey is not in this table: "
            "on Node 20 it answers every streamed request to a custom host with 500 (`TypeError: immutable`).",
            "",
            *self._table(STREAMS, lambda found: found.first_p50),
            "",
            *self._workers(),
        ]
        return "\n".join(lines) + "\n"

    def ratio(self, workload: str, concurrency: int, peer: str, several: bool = False) -> float:
        """Times a peer's requests a second, routed."""
        cells = self.several if several else self.cells
        pairs = zip(cells["routed", workload, concurrency], cells[peer, workload, concurrency], strict=True)
        return median(ours.rate / theirs.rate for ours, theirs in pairs)

    def added(self, name: str, workload: str, concurrency: int, of: Of) -> float:
        """Milliseconds more than the upstream takes by itself; for the upstream, what it takes."""
        through, direct = self.cells[name, workload, concurrency], self.cells["upstream", workload, concurrency]
        return median(of(a) - (of(b) if a is not b else 0.0) for a, b in zip(through, direct, strict=True))

    def _setting(self) -> list[str]:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        shares = [found.busy for measured in self.cells.values() for found in measured]
        reasons = ", ".join(f"`{reason}` {count:,}" for reason, count in self.reasons.items())
        return [
            "# The gateway's speed",
            "",
            f"    .venv/bin/python benchmarks/gateway.py --seconds {self.seconds:g} --rounds {self.rounds}",
            "",
            f"{versions}; one worker each, as their own commands start them, on {os.cpu_count()} "
            f"cores, of which other programs took {self.others:.2f} during the run (load average before it: "
            f"{self.load:.1f}). The upstream answers immediately from a separate process on localhost. The load "
            "generator is another process, with raw sockets: a connection sends a request, waits for the whole "
            "answer, and repeats; it used at most "
            f"{max(shares):.0%} of a core, and the first row is its ceiling. Each cell is measured for "
            f"{self.seconds:g} s after a second of warm-up, one server after the other, in "
            f"{self.rounds} rounds; ratios and differences are taken within a round; medians over rounds. Every "
            "answer had status 200.",
            "",
            "Routed, the gateway checks a key, reads the prompt, encodes it with `static` or takes its embedding from "
            "the cache, estimates twelve models with the default router, forwards, and commits a row to its "
            "SQLite log before the answer ends. With a named model nothing is estimated; the rest is the same. Its "
            "log holds "
            f"{self.logged:,} answered requests, none missing, for the reasons {reasons}. LiteLLM checks its master "
            "key and forwards, Portkey forwards to the address in a header; neither routes, and neither has a "
            "database here.",
            "",
            "Requests per second at 1, 8, 32 and 128 connections; in parentheses the milliseconds added to the "
            "upstream's own latency (first row: that latency), p50 / p99.",
            "",
        ]

    def _target(self, peer: str, least: float) -> str:
        ratio = self.ratio(LONG, 32, peer)
        return (
            f"- Routed on unique prompts of 1,500 characters, at 32 connections: **{ratio:.1f} times** the requests "
            f"per second of {ROWS[peer]} (target: at least {least:g}; {'met' if ratio >= least else 'missed'})."
        )

    def _latency(self) -> str:
        more, *theirs = (self.added(name, LONG, 1, lambda found: found.p50) for name in ("routed", *TARGETS))
        peers = " and ".join(f"{ROWS[peer]} adds {one:.1f}" for peer, one in zip(TARGETS, theirs, strict=True))
        return (
            f"- At one connection such a request takes **{more:.2f} ms** more than asked directly (target: under "
            f"{MAX_ADDED:g}; {'met' if more < MAX_ADDED else 'missed'}); {peers}."
        )

    def _bound(self) -> str:
        ours, named, *theirs = (
            median(found.cpu for found in self.cells[name, LONG, 32]) for name in ("routed", "named", *TARGETS)
        )
        peers = " and ".join(f"{ROWS[peer]} {one:.2f}" for peer, one in zip(TARGETS, theirs, strict=True))
        return (
            f"- Such a request takes {ours:.2f} ms of processor time over all processes, {peers}. What bounds requests "
            "per second is the part of it on the event loop, since Python runs one thread at a time: reading, routing, "
            f"forwarding and logging in Python (model named, with the encoder beside: {named:.2f} ms in all)."
        )

    def _encoding(self, workload: str) -> list[str]:
        found = self.asked[workload]
        if not found["misses"] + found["late"]:
            return []
        asked = found["hits"] + found["misses"] + found["late"] + found["failed"]
        late = found["late"] + found["failed"]
        return [
            f"Of {asked:,} routed requests, {late:,} ({late / asked:.2%}) did not get their embedding in time and went "
            "to the default model.",
            "",
        ]

    def _table(self, workload: str, middle: Of) -> list[str]:
        concurrencies = sorted({concurrency for _, kind, concurrency in self.cells if kind == workload})
        lines = [f"| {' | '.join(['', *map(str, concurrencies)])} |", "|---|" + "---|" * len(concurrencies)]
        for name in taking_part(workload):
            cells = []
            for each in concurrencies:
                rate = median(found.rate for found in self.cells[name, workload, each])
                p50, p99 = (self.added(name, workload, each, of) for of in (middle, lambda found: found.p99))
                cells.append(f"{rate:,.0f} ({p50:.2f} / {p99:.2f})")
            lines.append(f"| {' | '.join([ROWS[name], *cells])} |")
        for peer in (peer for peer in TARGETS if peer in taking_part(workload)):
            ratios = [f"**{self.ratio(workload, each, peer):.1f}**" for each in concurrencies]
            lines.append(f"| {' | '.join([f'routed, {ROWS[peer]} = 1', *ratios])} |")
        return lines

    def _cpu(self) -> list[str]:
        """The section on processor time, which depends little on what else runs."""
        kinds = {
            "cached": "embeddings cached",
            "unique 100": "unique, 100 characters",
            LONG: "unique, 1,500 characters",
        }
        lines = [
            "## Processor time",
            "",
            "Milliseconds a request at 32 connections, of all threads and processes of a server. It says what a core "
            "can do, and depends less than requests per second do on what else the machine does.",
            "",
            f"| {' | '.join(['', *kinds.values()])} |",
            "|---|" + "---|" * len(kinds),
        ]
        for name in (name for name in ROWS if name != "upstream"):
            spent = [f"{median(found.cpu for found in self.cells[name, kind, 32]):.2f}" for kind in kinds]
            lines.append(f"| {' | '.join([ROWS[name], *spent])} |")
        return [*lines, ""]

    def _workers(self) -> list[str]:
        """The section with two workers each, at 32 connections."""
        lines = [
            "## Two workers each",
            "",
            "`fedrouter serve --workers 2` and LiteLLM's `--num_workers 2`; Portkey has no workers of its own, so this "
            "is two processes of Node's cluster module. Requests per second at 32 connections, and how many times that "
            f"of one worker it is. Load and upstream share the same {os.cpu_count()} cores, so two workers of anything "
            "cannot do twice as much here.",
            "",
            f"| {' | '.join(['', *MANY.values()])} |",
            "|---|" + "---|" * len(MANY),
        ]
        for name in ("routed", *TARGETS):
            rates = [median(found.rate for found in self.several[name, kind, 32]) for kind in MANY]
            alone = [median(found.rate for found in self.cells[name, kind, 32]) for kind in MANY]
            shown = [f"{rate:,.0f} ({rate / one:.1f})" for rate, one in zip(rates, alone, strict=True)]
            lines.append(f"| {' | '.join([ROWS[name], *shown])} |")
        for peer in TARGETS:
            ratios = [f"**{self.ratio(kind, 32, peer, several=True):.1f}**" for kind in MANY]
            lines.append(f"| {' | '.join([f'routed, {ROWS[peer]} = 1', *ratios])} |")
        return lines

    def _start(self, name: str) -> str:
        server = self.servers[name]
        shown = {"fedrouter": "**fedrouter**"}.get(name, ROWS.get(name, name))
        return f"| {shown} | {server.listens:.1f} / {server.ready:.1f} | {server.idle:.0f} / {server.after:.0f} |"
