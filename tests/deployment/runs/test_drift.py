"""A run that asks about drift: under real masks, with clients that derive the question, day after day."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("cryptography")

from conftest import drawn_evaluations
from fedrouter.bundle import load
from fedrouter.deployment.runs import drift
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.acceptance import acceptance_of
from fedrouter.deployment.runs.drift import asked, days_to_ask, perform_drift
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.client import Client
from fedrouter.federation.rederivation import Rederivation

KMEANS = Job(family="kmeans", settings={"k_local": 4, "k_global": 5}, secure=2 / 3)
TODAY = 20_003  # the rows are of the days 20000 to 20002


class Directory:
    """As much of a coordinator's state directory as asking needs."""

    def __init__(self, runs):
        self.runs = runs


def federation():
    rows = {name: drawn_evaluations(queries=300, seed=ord(name)) for name in "abcd"}
    return LocalFederation(
        Client(name, own, encoder="one", rederivation=Rederivation(name)) for name, own in rows.items()
    )


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    everyone = federation()
    perform(KMEANS, everyone, folder, ProgressLog(folder))
    return everyone, load(folder / "bundle")


def job_for(base, first, days):
    return Job("drift", "kmeans", {"first": first, "days": days}, base=str(base.path), secure=2 / 3)


def run(directory, name, job, everyone):
    folder = directory.runs / name
    jobs.write(job, folder)
    return perform_drift(job, everyone, folder, ProgressLog(folder))


def test_days_are_asked_about_once_and_add_up(learned, tmp_path):
    everyone, base = learned
    directory = Directory(tmp_path)
    assert asked(directory, base) is None
    first, days = days_to_ask(directory, base, (TODAY - 1) * 86_400.0)
    assert first + days == TODAY - 1
    result = run(directory, "run-1", job_for(base, first, days), everyone)
    assert result == json.loads((tmp_path / "run-1" / "result.json").read_text())
    assert days_to_ask(directory, base, TODAY * 86_400.0) == (TODAY - 1, 1)
    run(directory, "run-2", job_for(base, TODAY - 1, 1), everyone)
    assert acceptance_of(tmp_path / "run-2") is None
    sums = asked(directory, base)
    assert sums.last == TODAY - 1
    assert 0.6 * 1200 < sums.count.sum() <= 1200  # of rows that are too few, some wait
    assert np.array_equal(sums.count, np.rint(sums.count))
    with pytest.raises(BadInput, match="ask again tomorrow"):
        days_to_ask(directory, base, TODAY * 86_400.0)


def test_a_question_about_other_days_than_the_run_states_is_refused(learned, tmp_path, monkeypatch):
    everyone, base = learned
    honest = drift.residuals_request
    monkeypatch.setattr(drift, "residuals_request", lambda router, first, days: honest(router, first - 1, days))
    with pytest.raises(FedrouterError):
        run(Directory(tmp_path), "run-1", job_for(base, TODAY - 2, 1), everyone)
    assert not (tmp_path / "run-1" / "result.json").exists()


def test_a_job_without_a_router_is_refused():
    with pytest.raises(BadInput, match="works with a bundle"):
        Job("drift", "kmeans", {"first": 0, "days": 1})
