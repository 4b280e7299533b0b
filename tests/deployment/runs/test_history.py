"""What earlier runs tell about the next one: how many exchanges it will take."""

import json

import pytest

from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.history import usual_exchanges
from fedrouter.deployment.runs.job import RESULT, Job
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.directories import create_coordinator

JOB = Job(family="kmeans")


@pytest.mark.parametrize(
    ("events", "usual"),
    [
        (["exchange", "start", "exchange", "exchange"], 3),
        (["exchange", "failed", "exchange", "failed", "exchange", "start", "exchange"], 2),
        (["exchange", "start", "exchange", "failed", "exchange"], 3),
    ],
    ids=["to its end", "refused twice after the handshake", "resumed after it had begun"],
)
def test_the_usual_number_of_exchanges_leaves_out_handshakes_that_were_in_vain(tmp_path, events, usual):
    directory = create_coordinator(tmp_path / "coordinator", ("localhost",))
    assert usual_exchanges(directory, JOB) is None
    folder = directory.runs / "run-1"
    folder.mkdir(parents=True)
    jobs.write(JOB, folder)
    log = ProgressLog(folder)
    for event in events:
        log.write(event)
    (folder / RESULT).write_text(json.dumps({"rows": 10}))
    assert usual_exchanges(directory, JOB) == usual
