"""A bundle is a candidate until it is judged; the one accepted last is served, and a verdict can be withdrawn."""

import json

import pytest

from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.acceptance import (
    FILE,
    Acceptance,
    acceptance_of,
    accepted_bundles,
    decide,
    require_accepted,
)
from fedrouter.deployment.runs.history import past_runs
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.state.directories import create_coordinator
from fedrouter.errors import BadInput


@pytest.fixture
def directory(tmp_path):
    return create_coordinator(tmp_path / "coordinator", ("localhost",))


def finished(directory, name):
    folder = directory.runs / name
    jobs.write(Job(), folder)
    (folder / "bundle").mkdir()
    (folder / "result.json").write_text("{}")
    return folder


def test_a_bundle_is_a_candidate_until_it_is_judged(directory):
    folder = finished(directory, "run-1")
    assert acceptance_of(folder) == Acceptance("candidate")
    assert accepted_bundles(directory) == {}
    decide(folder, "accepted", "clears zero", {"gain": 0.01})
    found = acceptance_of(folder)
    assert (found.status, found.why, found.evidence) == ("accepted", "clears zero", {"gain": 0.01})
    assert [run.bundle for run in past_runs(directory)] == ["accepted"]


def test_the_one_accepted_last_is_last_and_rejecting_it_goes_back(directory):
    first, second = finished(directory, "run-1"), finished(directory, "run-2")
    decide(second, "accepted", "")
    decide(first, "accepted", "")
    assert list(accepted_bundles(directory)) == ["run-2", "run-1"]
    decide(first, "rejected", "worse for a member")
    assert list(accepted_bundles(directory)) == ["run-2"]


def test_what_cannot_be_judged_is_refused_in_a_line(directory):
    jobs.write(Job(), directory.runs / "run-1")
    assert acceptance_of(directory.runs / "run-1") is None
    with pytest.raises(BadInput, match="run-1: has made no bundle"):
        decide(directory.runs / "run-1", "accepted", "")
    folder = finished(directory, "run-2")
    with pytest.raises(BadInput, match="expected candidate, accepted, rejected"):
        decide(folder, "good", "")
    (folder / FILE).write_text("half a fi")
    with pytest.raises(BadInput, match="not JSON"):
        acceptance_of(folder)
    (folder / FILE).write_text(json.dumps({"verdict": 1}))
    with pytest.raises(BadInput, match="not in the format"):
        acceptance_of(folder)


def test_a_bundle_of_a_run_must_be_accepted_to_be_served(directory, tmp_path):
    folder = finished(directory, "run-1")
    with pytest.raises(BadInput, match=r"run-1/bundle: candidate; .*--force"):
        require_accepted(folder / "bundle")
    decide(folder, "rejected", "worse")
    with pytest.raises(BadInput, match=r"rejected \(worse\)"):
        require_accepted(folder / "bundle")
    decide(folder, "accepted", "")
    require_accepted(folder / "bundle")
    require_accepted(tmp_path / "elsewhere" / "bundle")  # of no federation
