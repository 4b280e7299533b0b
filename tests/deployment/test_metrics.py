"""Metrics of a coordinator, as Prometheus reads them, from what is in its state directory."""

import socket
import urllib.error
import urllib.request

import pytest

pytest.importorskip("flwr")
pytest.importorskip("prometheus_client")

from prometheus_client import parser

from fedrouter.deployment.metrics import metrics, serving_metrics
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.directories import create_coordinator
from fedrouter.errors import BadInput


@pytest.fixture
def directory(tmp_path):
    directory = create_coordinator(tmp_path / "coordinator", ("localhost",))
    directory.write_config(directory.config().with_client("north", "key"))
    folder = directory.runs / "run-1"
    jobs.write(Job(), folder)
    log = ProgressLog(folder)
    for seconds in (0.5, 1.25):
        log.write("exchange", number=1, verbs=["hello"], asked=2, answered=1, seconds=seconds)
    log.dropped('so"uth\\', "hello", "not connected")
    log.dropped('so"uth\\', "hello", "not connected")
    log.write("failed", why="the quorum")
    return directory


def values(text):
    return {
        (sample.name.removeprefix("fedrouter_federation_"), *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_number_is_one_that_the_directory_has(directory):
    found = values(metrics(directory))
    assert found["clients_enrolled",] == 1
    assert found["runs", "failed"] == 1
    assert found["exchanges_total",] == 2
    assert found["exchange_seconds_total",] == 1.75
    assert found["answers_not_used_total", 'so"uth\\', "hello"] == 2
    assert found["last_run_done_timestamp_seconds",] == 0
    assert found["certificate_expiry_timestamp_seconds",] > 1.7e9
    assert not [name for name in found if name[0] == "client_online"]  # nothing answers


def test_they_are_served_and_nothing_else_is(directory):
    with serving_metrics(directory, f"127.0.0.1:{_free()}") as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert values(answer.read().decode())["runs", "failed"] == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ca.key", timeout=30)
        with (
            pytest.raises(BadInput, match="another program listens there"),
            serving_metrics(directory, f"127.0.0.1:{port}"),
        ):
            pass


def _free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
