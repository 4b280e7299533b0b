"""Conversations that stay with their model, for as long as they may."""

import pytest

from fedrouter.gateway.routing import decision
from fedrouter.gateway.routing.decision import StickySessions


@pytest.fixture
def clock(monkeypatch):
    """The time, which a test sets."""
    now = [1000.0]
    monkeypatch.setattr(decision.time, "monotonic", lambda: now[0])
    return now


def test_a_conversation_that_is_over_takes_no_memory(clock):
    sessions = StickySessions(10)
    for number in range(100):
        clock[0] += 1
        sessions.served(f"session {number}", "a")
        assert len(sessions) <= 11
    assert sessions.last("session 99").model == "a"
    assert sessions.last("session 80") is None


def test_a_conversation_that_goes_on_is_kept(clock):
    sessions = StickySessions(10)
    for number in range(100):
        clock[0] += 1
        sessions.served(f"session {number}", "a")
        sessions.served("long", "b")
    assert sessions.last("long").model == "b"
