"""The file of a job: what is written is read again, and nothing else is taken for a job."""

import pytest

from fedrouter.deployment.runs.job import Job, read, write
from fedrouter.errors import BadInput

JOB = Job("add_clients", clients=("bank",), base="bundle", pool=({"name": "new"},), seed=3)


def test_a_job_is_read_as_it_was_written(tmp_path):
    write(JOB, tmp_path / "run-1")
    assert read(tmp_path / "run-1") == JOB
    assert JOB.to_json()["operation"] == "add_clients"


@pytest.mark.parametrize("change", [{"operation": "absorb"}, {"verb": "learn"}])
def test_what_is_not_in_the_format_of_a_job_is_refused(change):
    with pytest.raises(BadInput, match="job"):
        Job.from_json(JOB.to_json() | change)


def test_a_job_is_shown_in_the_words_of_its_option():
    assert JOB.what == "join kmeans"
