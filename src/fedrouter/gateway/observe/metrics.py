"""Prometheus metrics of the gateway. Labels are names of models and keys, reasons and codes; nothing of a prompt.

By `prometheus_client`: a worker of several counts in files of a folder that all of them share, and any of them shows
the sums of all, also of those that have ended. The folder is in the environment before this is imported.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client import Gauge as PrometheusGauge
from prometheus_client.multiprocess import MultiProcessCollector

from fedrouter.store.records import Record

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable from which prometheus_client knows it."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histograms' buckets, in seconds."""
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "fedrouter_requests_total": (
        "Requests that reached a decision, by serving model, status and reason.",
        ("model", "status", "reason"),
    ),
    "fedrouter_refused_total": ("Requests that were rejected, by error code.", ("code",)),
    "fedrouter_tokens_total": ("Tokens, by model and direction.", ("model", "direction")),
    "fedrouter_cost_usd_total": ("US dollars spent, by model.", ("model",)),
    "fedrouter_baseline_cost_usd_total": ("US dollars the baseline model would have cost for the same tokens.", ()),
    "fedrouter_fallbacks_total": ("Requests served by another model than the chosen one.", ("chosen", "served")),
    "fedrouter_upstream_failures_total": ("Failed attempts to call an upstream, by model.", ("model",)),
    "fedrouter_feedback_total": ("Scores received, by outcome.", ("outcome",)),
    "fedrouter_scores_total": ("Scores received, by the model that answered.", ("model",)),
    "fedrouter_score_sum_total": ("The sum of these scores; divided by their number it is the mean.", ("model",)),
    "fedrouter_key_requests_total": ("Requests that reached a decision, by the name of the API key.", ("key",)),
    "fedrouter_key_cost_usd_total": ("US dollars spent, by the name of the API key.", ("key",)),
    "fedrouter_removed_total": (
        "Rows, and prompts with their embeddings, that retention has removed from the log.",
        ("what",),
    ),
}
HISTOGRAMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "fedrouter_request_seconds": ("Duration of a request, from first byte to last, by model.", ("model",)),
    "fedrouter_first_token_seconds": ("Time until a streamed answer begins, by model.", ("model",)),
    "fedrouter_overhead_seconds": ("The part of a request's duration not spent waiting for an upstream.", ()),
}
SUMMED = frozenset(
    f"fedrouter_{name}"
    for name in ("log_waiting", "log_deferred", "encoder_waiting", "encoder_asks", "in_progress", "tasks", "sessions")
)
"""Gauges that are added up over workers; of all others the largest counts."""
REMEMBERED = 10_000
"""Requests whose model is kept in memory for when they are scored."""
EVERY = 1.0
"""Seconds between two looks at what a worker has counted and at its gauges."""
AT_ONCE = 10_000
"""Durations that are added to the histograms at once, at most."""
Labels = tuple[tuple[str, str], ...]
Gauge = tuple[str, str, Labels, float]
"""Name, help, labels and value."""
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """What the gateway has done since it started, and gauges, which ``gauges`` reads."""

    def __init__(self, gauges: Callable[[], Iterable[Gauge]] = lambda: ()) -> None:
        self.gauges = gauges
        self._folder = os.environ.get(METRICS_FOLDER)
        self._own = CollectorRegistry(auto_describe=False)
        self._known: dict[str, Any] = {
            name: Counter(name, about, labels, registry=self._own) for name, (about, labels) in COUNTERS.items()
        }
        for name, (about, labels) in HISTOGRAMS.items():
            self._known[name] = Histogram(name, about, labels, buckets=BUCKETS, registry=self._own)
        self._read: dict[tuple[str, Labels], float] = {}
        """The gauges as of the last reading."""
        self._counted: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._observed: list[tuple[str, Labels, float]] = []
        """What is not in prometheus_client's metrics yet, which take longer than all else that a request counts."""
        self._models: OrderedDict[str, str] = OrderedDict()

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Increase a counter of :data:`COUNTERS`."""
        self._counted[name, tuple(labels.items())] += amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to one of :data:`HISTOGRAMS`."""
        self._observed.append((name, tuple(labels.items()), seconds))
        if len(self._observed) >= AT_ONCE:
            self._add_up()

    def served(self, record: Record, key: str) -> None:
        """Count a request that has its row in the log; ``key`` is the name of its API key."""
        model = record.served or record.chosen
        self._models[record.id] = model
        if len(self._models) > REMEMBERED:
            self._models.popitem(last=False)
        self.count("fedrouter_key_requests_total", key=key)
        if record.cost is not None:
            self.count("fedrouter_key_cost_usd_total", record.cost, key=key)
        self.count("fedrouter_requests_total", model=model, status=record.status, reason=record.reason)
        self.observe("fedrouter_request_seconds", record.latency_ms / 1000, model=model)
        self.observe("fedrouter_overhead_seconds", record.overhead_ms / 1000)
        if record.served is not None and record.served != record.chosen:
            self.count("fedrouter_fallbacks_total", chosen=record.chosen, served=record.served)
        if record.cost is not None:
            self.count("fedrouter_tokens_total", record.input_tokens or 0, model=model, direction="input")
            self.count("fedrouter_tokens_total", record.output_tokens or 0, model=model, direction="output")
            self.count("fedrouter_cost_usd_total", record.cost, model=model)
        if record.baseline_cost is not None:
            self.count("fedrouter_baseline_cost_usd_total", record.baseline_cost)

    def model_of(self, decision: str) -> str | None:
        """The model of a request, if it was served by this process not long ago."""
        return self._models.get(decision)

    def scored(self, model: str | None, score: float, outcome: str) -> None:
        """Count a score that arrived, for the model that answered if it is known."""
        self.count("fedrouter_feedback_total", outcome=outcome)
        if model is not None and outcome in ("stored", "deferred"):
            self.count("fedrouter_scores_total", model=model)
            self.count("fedrouter_score_sum_total", score, model=model)

    async def run(self) -> None:
        """Write what a worker of several has counted now and then, until cancelled, so that the others can show it."""
        try:
            while self._folder is not None:
                self._add_up()
                self._read_gauges()
                await asyncio.sleep(EVERY)
        finally:
            self._add_up()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        self._add_up()
        self._read_gauges()
        if self._folder is None:
            return generate_latest(self._own)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody, self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)

    def _add_up(self) -> None:
        counted, self._counted = self._counted, defaultdict(float)
        observed, self._observed = self._observed, []
        for (name, labels), amount in counted.items():
            self._child(name, labels).inc(amount)
        for name, labels, seconds in observed:
            self._child(name, labels).observe(seconds)

    def _read_gauges(self) -> None:
        now = {(name, labels): (about, float(value)) for name, about, labels, value in self.gauges()}
        gone = {each: ("", 0.0) for each in self._read if each not in now}
        self._read = {each: value for each, (_, value) in now.items()}
        for (name, labels), (about, value) in (now | gone).items():
            if name not in self._known:
                mode: Any = "livesum" if name in SUMMED else "livemax"
                self._known[name] = PrometheusGauge(
                    name, about, [label for label, _ in labels], registry=self._own, multiprocess_mode=mode
                )
            self._child(name, labels).set(value)

    def _child(self, name: str, labels: Labels) -> Any:
        return self._known[name].labels(**dict(labels)) if labels else self._known[name]
