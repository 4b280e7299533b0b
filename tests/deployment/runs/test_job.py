"""The file of a job: what older versions wrote is read, and what is written they could read."""

import pytest

from fedrouter.deployment.runs.job import Job

OLD = {"verb": "extend", "family": "kmeans", "settings": {}, "seed": 3, "pool": [{"name": "new"}], "clients": ["bank"]}


@pytest.mark.parametrize(
    ("word", "operation"), [("learn", "learn"), ("extend", "add_models"), ("absorb", "add_clients")]
)
def test_the_operation_keeps_its_name_in_the_file(word, operation):
    job = Job.from_json(OLD | {"verb": word, "base": None if word == "learn" else "bundle"})
    assert job.operation == operation
    assert job.to_json()["verb"] == word
    assert Job.from_json(job.to_json()) == job


def test_a_job_is_shown_in_the_words_of_its_option():
    job = Job.from_json(OLD | {"verb": "absorb", "base": "bundle"})
    assert job.what == "join kmeans"
