"""Metrics in Prometheus' text format, read back by Prometheus' own parser."""

import os
import subprocess
import sys
from dataclasses import replace

from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from fedrouter.gateway.observe.metrics import BUCKETS, COUNTERS, METRICS_FOLDER, Metrics
from fedrouter.store.records import Record

RECORD = Record(
    id="a", time=0.0, key="k", bundle="b", version=1, family="f", tradeoff=1.0, chosen="m", reason="best",
    served="m", cost=0.002, baseline_cost=0.01, input_tokens=10, output_tokens=5, latency_ms=20.0, overhead_ms=2.0,
    status="ok",
)  # fmt: skip


def samples(metrics):
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}


def test_a_served_request_is_counted_by_model_status_and_reason():
    metrics = Metrics()
    metrics.served(RECORD, "app")
    metrics.served(replace(RECORD, served="n", cost=None, baseline_cost=None, latency_ms=200_000.0), "app")
    found = samples(metrics)
    assert found["fedrouter_requests_total", ("model", "m"), ("reason", "best"), ("status", "ok")] == 1
    assert found["fedrouter_fallbacks_total", ("chosen", "m"), ("served", "n")] == 1
    assert found["fedrouter_tokens_total", ("direction", "input"), ("model", "m")] == 10
    assert found["fedrouter_cost_usd_total", ("model", "m")] == 0.002
    assert found["fedrouter_baseline_cost_usd_total",] == 0.01
    assert found["fedrouter_request_seconds_count", ("model", "m")] == 1
    assert found["fedrouter_request_seconds_sum", ("model", "n")] == 200.0
    assert found["fedrouter_request_seconds_bucket", ("le", "0.01"), ("model", "m")] == 0
    assert found["fedrouter_request_seconds_bucket", ("le", "0.025"), ("model", "m")] == 1
    assert found["fedrouter_request_seconds_bucket", ("le", str(BUCKETS[-1])), ("model", "n")] == 0
    assert found["fedrouter_request_seconds_bucket", ("le", "+Inf"), ("model", "n")] == 1
    assert found["fedrouter_overhead_seconds_count",] == 2
    assert found["fedrouter_key_requests_total", ("key", "app")] == 2
    assert found["fedrouter_key_cost_usd_total", ("key", "app")] == 0.002


def test_scores_are_counted_by_the_model_that_answered(monkeypatch):
    monkeypatch.setattr("fedrouter.gateway.observe.metrics.REMEMBERED", 1)
    metrics = Metrics()
    metrics.served(replace(RECORD, id="old"), "app")
    metrics.served(replace(RECORD, id="new", served="n"), "app")
    assert (metrics.model_of("new"), metrics.model_of("old")) == ("n", None)
    metrics.scored("n", 0.75, "stored")
    metrics.scored("n", 0.75, "same")
    metrics.scored(None, 0.5, "stored")
    found = samples(metrics)
    assert found["fedrouter_scores_total", ("model", "n")] == 1
    assert found["fedrouter_score_sum_total", ("model", "n")] == 0.75
    assert ("fedrouter_scores_total", ("model", "m")) not in found
    assert found["fedrouter_feedback_total", ("outcome", "stored")] == 2


def test_histograms_are_by_model():
    metrics = Metrics()
    metrics.observe("fedrouter_first_token_seconds", 0.02, model="m")
    assert samples(metrics)["fedrouter_first_token_seconds_count", ("model", "m")] == 1


def test_every_counter_is_described_before_it_has_a_value():
    text = Metrics().exposition().decode()
    for name in COUNTERS:
        assert f"# HELP {name} " in text
        assert f"# TYPE {name} counter" in text
    assert "_created" not in text


def test_gauges_are_read_when_metrics_are_scraped_and_labels_are_escaped():
    waiting = [3.0]
    metrics = Metrics(lambda: [("fedrouter_log_waiting", "about", (), waiting[0])])
    metrics.count("fedrouter_refused_total", code='a"b\\c\nd')
    assert samples(metrics)["fedrouter_log_waiting",] == 3
    waiting[0] = 4.0
    found = samples(metrics)
    assert found["fedrouter_log_waiting",] == 4
    assert found["fedrouter_refused_total", ("code", 'a"b\\c\nd')] == 1


def test_a_gauge_that_is_not_read_any_more_is_zero():
    found = [("fedrouter_resting", "about", (("model", "m"),), 1)]
    metrics = Metrics(lambda: found)
    assert samples(metrics)["fedrouter_resting", ("model", "m")] == 1
    found.clear()
    assert samples(metrics)["fedrouter_resting", ("model", "m")] == 0


WORKER = """
import sys
from fedrouter.gateway.observe.metrics import Metrics
metrics = Metrics(lambda: [("fedrouter_in_progress", "about", (), 2), ("fedrouter_resting", "about", (), 1)])
metrics.count("fedrouter_refused_total", code="x")
metrics.observe("fedrouter_overhead_seconds", 0.02)
sys.stdout.buffer.write(metrics.exposition())
sys.stdout.flush()
sys.stdin.read()
"""


def test_any_worker_shows_the_sums_of_all_also_of_those_that_have_ended(tmp_path):
    environment = {**os.environ, METRICS_FOLDER: str(tmp_path)}
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert all(worker.stdout.readline() for worker in workers)

    def shown():
        program = WORKER.replace("metrics.count", "0 and metrics.count").replace(
            "metrics.observe", "0 and metrics.observe"
        )
        told = subprocess.run(
            [sys.executable, "-c", program], env=environment, input=b"", capture_output=True, check=True
        )
        families = text_string_to_metric_families(told.stdout.decode())
        found = {
            (each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples
        }
        for path in tmp_path.glob("gauge_live*"):  # those of the process that asked
            if str(workers[0].pid) not in path.name and str(workers[1].pid) not in path.name:
                path.unlink()
        return found

    found = shown()
    assert found["fedrouter_refused_total", ("code", "x")] == found["fedrouter_overhead_seconds_count",] == 2
    assert (found["fedrouter_in_progress",], found["fedrouter_resting",]) == (6, 1)
    workers[1].communicate(b"")
    mark_process_dead(workers[1].pid, str(tmp_path))
    found = shown()
    assert found["fedrouter_refused_total", ("code", "x")] == 2
    assert found["fedrouter_in_progress",] == 4
    workers[0].communicate(b"")
