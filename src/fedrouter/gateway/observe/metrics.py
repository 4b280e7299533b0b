"""Counters and timings in Prometheus' text form. Labels are names of models, reasons and codes; nothing of a prompt."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from fedrouter.store.records import Record

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
HELP = {
    "fedrouter_requests_total": "Requests that reached a decision, by the model that served, how it ended and why.",
    "fedrouter_refused_total": "Requests that were refused, by code.",
    "fedrouter_tokens_total": "Tokens, by model and direction.",
    "fedrouter_cost_usd_total": "Dollars spent, by model.",
    "fedrouter_baseline_cost_usd_total": "Dollars the baseline model would have cost for the same tokens.",
    "fedrouter_fallbacks_total": "Requests served by another model than the chosen one.",
    "fedrouter_upstream_failures_total": "Attempts at an upstream that failed, by model.",
    "fedrouter_feedback_total": "Scores received, by what became of them.",
}
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Counts by upper bound."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, about: str) -> Iterable[str]:
        yield from (f"# HELP {name} {about}", f"# TYPE {name} histogram")
        total = 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """What the gateway has done since it started."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._latency, self._overhead = Histogram(), Histogram()

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self._counts[name][tuple(labels.items())] += amount

    def served(self, record: Record) -> None:
        model = record.served or record.chosen
        self.count("fedrouter_requests_total", model=model, status=record.status, reason=record.reason)
        self._latency.add(record.latency_ms / 1000)
        self._overhead.add(record.overhead_ms / 1000)
        if record.served is not None and record.served != record.chosen:
            self.count("fedrouter_fallbacks_total", chosen=record.chosen, served=record.served)
        if record.cost is not None:
            self.count("fedrouter_tokens_total", record.input_tokens or 0, model=model, direction="input")
            self.count("fedrouter_tokens_total", record.output_tokens or 0, model=model, direction="output")
            self.count("fedrouter_cost_usd_total", record.cost, model=model)
        if record.baseline_cost is not None:
            self.count("fedrouter_baseline_cost_usd_total", record.baseline_cost)

    def text(self, gauges: Iterable[tuple[str, str, Labels, float]]) -> str:
        """The whole page; ``gauges`` are (name, help, labels, value) that others keep."""
        lines: list[str] = []
        for name, about in HELP.items():
            lines += (f"# HELP {name} {about}", f"# TYPE {name} counter")
            lines += (f"{name}{_shown(labels)} {value:.10g}" for labels, value in self._counts[name].items())
        lines += self._latency.lines("fedrouter_request_seconds", "From a request's first byte to its last.")
        lines += self._overhead.lines("fedrouter_overhead_seconds", "Of that, what the upstream did not take.")
        said = set()
        for name, about, labels, value in gauges:
            if name not in said:
                said.add(name)
                lines += (f"# HELP {name} {about}", f"# TYPE {name} gauge")
            lines.append(f"{name}{_shown(labels)} {value:.10g}")
        return "\n".join(lines) + "\n"


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
