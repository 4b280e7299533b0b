"""`fedrouter federation drift` over the network: secure sums of real clients, asked about each day once."""

import time

import pytest

pytest.importorskip("flwr")

from cli.command import answer, run
from deployment.real_federation import RealFederation
from fedrouter.data.source import Source
from fedrouter.deployment.runs.job import Job

pytestmark = pytest.mark.slow
NAMES = ("alpha", "beta", "gamma")
JOB = Job(family="kmeans", settings={"k_local": 4, "k_global": 5}, quorum=3, timeout=240, gather=240, secure=2 / 3)
DAY = 86_400.0


@pytest.fixture
def federation(world, tmp_path):
    real = RealFederation(tmp_path, world, NAMES)
    for name in NAMES:
        add_times(real.clients[name].config().log)
    try:
        real.start_all(within=240)
        yield real
    finally:
        real.stop_all()


def add_times(path):
    """Give the rows of a log the times of the last three days."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = Source(path).rows
    at = [time.time() - (1 + 3 * number / rows) * DAY for number in range(rows)]
    pq.write_table(pq.read_table(path).append_column("time", pa.array(at)), path)


def test_members_are_asked_about_each_day_once_and_status_and_audit_show_it(federation):
    federation.run("learned", JOB)
    where = federation.coordinator.path
    bundle = where / "runs" / "learned" / "bundle"
    found = answer("federation", "drift", where, "--bundle", bundle, "--timeout", 240, "--wait", 240)
    assert found["answers"] > 0
    assert found["alarms"] == []
    again = run("federation", "drift", where, "--bundle", bundle)
    assert again.returncode == 2
    assert "ask again tomorrow" in again.stderr
    shown = answer("federation", "drift", where, "--bundle", bundle, "--no-ask")
    assert shown == found
    runs = answer("federation", "status", where)["runs"]
    assert runs[-1]["what"] == "drift of kmeans"
    assert runs[-1]["bundle"] is None
    client = answer("audit", federation.clients["alpha"].path)
    assert "residuals" in {each["verb"] for each in client["asked"]}
    assert "residuals" not in {each["verb"] for each in client["sent"]}  # it left under masks only
