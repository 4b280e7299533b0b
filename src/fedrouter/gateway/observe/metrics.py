"""Prometheus metrics of the gateway. Labels are names of models, reasons and codes; nothing of a prompt.

Values are kept in plain dictionaries, because every request updates several of them on one thread and needs no locks;
`prometheus_client` collects and formats them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from fedrouter.store.records import Record

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histograms' buckets, in seconds."""
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
HELP = {
    "fedrouter_requests_total": "Requests that reached a decision, by serving model, status and reason.",
    "fedrouter_refused_total": "Requests that were rejected, by error code.",
    "fedrouter_tokens_total": "Tokens, by model and direction.",
    "fedrouter_cost_usd_total": "US dollars spent, by model.",
    "fedrouter_baseline_cost_usd_total": "US dollars the baseline model would have cost for the same tokens.",
    "fedrouter_fallbacks_total": "Requests served by another model than the chosen one.",
    "fedrouter_upstream_failures_total": "Failed attempts to call an upstream, by model.",
    "fedrouter_feedback_total": "Scores received, by outcome.",
}
Labels = tuple[tuple[str, str], ...]
Gauge = tuple[str, str, Labels, float]
"""Name, help, labels and value."""


class Histogram:
    """Observations counted by bucket."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def family(self, name: str, about: str) -> Metric:
        total, buckets = 0, []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, about, buckets=buckets, sum_value=self._sum)


class Metrics(Collector):
    """What the gateway has done since it started, and gauges that ``gauges`` reads when metrics are scraped."""

    def __init__(self, gauges: Callable[[], Iterable[Gauge]] = lambda: ()) -> None:
        self._gauges = gauges
        self._counts: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._latency, self._overhead = Histogram(), Histogram()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Increase a counter of :data:`HELP`."""
        self._counts[name][tuple(labels.items())] += amount

    def served(self, record: Record) -> None:
        """Count a request that has its row in the log."""
        model = record.served or record.chosen
        self.count("fedrouter_requests_total", model=model, status=record.status, reason=record.reason)
        self._latency.observe(record.latency_ms / 1000)
        self._overhead.observe(record.overhead_ms / 1000)
        if record.served is not None and record.served != record.chosen:
            self.count("fedrouter_fallbacks_total", chosen=record.chosen, served=record.served)
        if record.cost is not None:
            self.count("fedrouter_tokens_total", record.input_tokens or 0, model=model, direction="input")
            self.count("fedrouter_tokens_total", record.output_tokens or 0, model=model, direction="output")
            self.count("fedrouter_cost_usd_total", record.cost, model=model)
        if record.baseline_cost is not None:
            self.count("fedrouter_baseline_cost_usd_total", record.baseline_cost)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics as `prometheus_client` wants them; it calls this."""
        for name, about in HELP.items():
            yield _family(CounterMetricFamily, name, about, self._counts[name].items())
        yield self._latency.family("fedrouter_request_seconds", "Duration of a request, from first byte to last.")
        yield self._overhead.family("fedrouter_overhead_seconds", "The part of it not spent waiting for an upstream.")
        gauges: dict[tuple[str, str], list[tuple[Labels, float]]] = defaultdict(list)
        for name, about, labels, value in self._gauges():
            gauges[name, about].append((labels, value))
        for (name, about), samples in gauges.items():
            yield _family(GaugeMetricFamily, name, about, samples)


def _family(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    about: str,
    samples: Iterable[tuple[Labels, float]],
) -> Metric:
    samples = list(samples)
    family = kind(name, about, labels=[label for label, _ in samples[0][0]] if samples else [])
    for labels, value in samples:
        family.add_metric([text for _, text in labels], value)
    return family
