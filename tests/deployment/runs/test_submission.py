"""A run is continued by itself where the SuperLink lost it, and whoever watches is told."""

from contextlib import contextmanager

from fedrouter.deployment.runs import submission
from fedrouter.deployment.runs.submission import SubmittedRun, follow
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.engines.flower.run_link import RunLost


def test_a_run_that_the_superlink_lost_goes_on_and_says_so(monkeypatch, tmp_path):
    @contextmanager
    def connected(directory, on_event):
        yield None

    attempts = iter([RunLost("lost"), {"bundle": "made"}])

    def perform(directory, name, link, on_event):
        outcome = next(attempts)
        if isinstance(outcome, RunLost):
            raise outcome
        return outcome

    monkeypatch.setattr(submission, "_connected", connected)
    monkeypatch.setattr(submission, "perform_run", perform)
    events = []
    assert follow(SubmittedRun(CoordinatorDirectory(tmp_path), "run-1", done=False), events.append) == {
        "bundle": "made"
    }
    assert [event["event"] for event in events] == ["note"]
    assert "run-1; it goes on after its last answered request" in events[0]["text"]
