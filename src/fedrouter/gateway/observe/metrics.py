"""Prometheus metrics of the gateway. Labels are names of models and keys, reasons and codes; nothing of a prompt.

Values are kept in plain dictionaries, because every request updates several of them on one thread and needs no locks;
`prometheus_client` collects and formats them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

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
    "fedrouter_scores_total": "Scores received, by the model that answered.",
    "fedrouter_score_sum_total": "The sum of these scores; divided by their number it is the mean.",
    "fedrouter_key_requests_total": "Requests that reached a decision, by the name of the API key.",
    "fedrouter_key_cost_usd_total": "US dollars spent, by the name of the API key.",
    "fedrouter_removed_total": "Rows, and prompts with their embeddings, that retention has removed from the log.",
}
HISTOGRAMS = {
    "fedrouter_request_seconds": "Duration of a request, from first byte to last, by model.",
    "fedrouter_first_token_seconds": "Time until a streamed answer begins, by model.",
    "fedrouter_overhead_seconds": "The part of a request's duration not spent waiting for an upstream.",
}
REMEMBERED = 10_000
"""Requests whose model is kept in memory for when they are scored."""
Labels = tuple[tuple[str, str], ...]
Gauge = tuple[str, str, Labels, float]
"""Name, help, labels and value."""


class Histogram:
    """Observations counted by bucket."""

    def __init__(self, counts: Sequence[int] = (0,) * (len(BUCKETS) + 1), total: float = 0.0) -> None:
        self._counts, self._sum = list(counts), total

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def plus(self, other: Histogram) -> Histogram:
        return Histogram([a + b for a, b in zip(self._counts, other._counts, strict=True)], self._sum + other._sum)

    def to_json(self) -> list[Any]:
        return [self._counts, self._sum]

    def add_to(self, family: HistogramMetricFamily, labels: Labels) -> None:
        """Add the buckets to a metric."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([value for _, value in labels], buckets, self._sum)


class Snapshot:
    """Counters and histograms of one process or of several together, and the gauges of each."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self.histograms: dict[str, dict[Labels, Histogram]] = {name: defaultdict(Histogram) for name in HISTOGRAMS}
        self.gauges: list[Gauge] = []

    def add(self, other: Snapshot) -> None:
        """Add what another process has counted, and its gauges."""
        for name, values in other.counts.items():
            for labels, value in values.items():
                self.counts[name][labels] += value
        for name, histograms in other.histograms.items():
            for labels, histogram in histograms.items():
                self.histograms[name][labels] = self.histograms[name][labels].plus(histogram)
        self.gauges += other.gauges

    def to_json(self) -> dict[str, Any]:
        return {
            "counts": [[name, labels, value] for name, all in self.counts.items() for labels, value in all.items()],
            "histograms": [
                [name, labels, *histogram.to_json()]
                for name, all in self.histograms.items()
                for labels, histogram in all.items()
            ],
            "gauges": self.gauges,
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Snapshot:
        snapshot = cls()
        for name, labels, value in found["counts"]:
            snapshot.counts[name][_labels(labels)] = value
        for name, labels, counts, total in found["histograms"]:
            snapshot.histograms[name][_labels(labels)] = Histogram(counts, total)
        snapshot.gauges = [(name, about, _labels(labels), value) for name, about, labels, value in found["gauges"]]
        return snapshot


class Metrics(Collector):
    """What the gateway has done since it started, and gauges that ``gauges`` reads when metrics are scraped.

    ``others`` is what the other workers of the gateway have counted, which is added.
    """

    def __init__(self, gauges: Callable[[], Iterable[Gauge]] = lambda: ()) -> None:
        self.gauges = gauges
        self.others: Callable[[], Iterable[Snapshot]] = lambda: ()
        self.worker: int | None = None
        """Which worker this is, as a label of its gauges; None if it is the only one."""
        self._now = Snapshot()
        self._counts, self._histograms = self._now.counts, self._now.histograms
        self._models: OrderedDict[str, str] = OrderedDict()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Increase a counter of :data:`HELP`."""
        self._counts[name][tuple(labels.items())] += amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to one of :data:`HISTOGRAMS`."""
        self._histograms[name][tuple(labels.items())].observe(seconds)

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

    def counted(self) -> Snapshot:
        """What this process has counted."""
        found = Snapshot()
        found.add(self._now)
        return found

    def snapshot(self) -> Snapshot:
        """What this process has counted, and its gauges."""
        found, own = self.counted(), () if self.worker is None else (("worker", str(self.worker)),)
        found.gauges = [(name, about, (*labels, *own), float(value)) for name, about, labels, value in self.gauges()]
        return found

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics as `prometheus_client` wants them; it calls this."""
        all = self.snapshot()
        for other in self.others():
            all.add(other)
        for name, about in HELP.items():
            yield _family(CounterMetricFamily, name, about, all.counts[name].items())
        for name, about in HISTOGRAMS.items():
            yield _histogram(name, about, all.histograms[name])
        gauges: dict[tuple[str, str], list[tuple[Labels, float]]] = defaultdict(list)
        for name, about, labels, value in all.gauges:
            gauges[name, about].append((labels, value))
        for (name, about), samples in gauges.items():
            yield _family(GaugeMetricFamily, name, about, samples)


def _labels(pairs: Iterable[Sequence[str]]) -> Labels:
    return tuple((name, value) for name, value in pairs)


def _histogram(name: str, about: str, found: Mapping[Labels, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, about, labels=[label for label, _ in next(iter(found), ())])
    for labels, histogram in found.items():
        histogram.add_to(family, labels)
    return family


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
