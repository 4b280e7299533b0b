"""The circuit breaker: closed, open after failures, half-open with one probe at a time."""

import threading
import time

import pytest

from fedrouter.gateway.upstream.deployments import FAILURES, CircuitBreaker, State, Ticket
from gateway.running import QUICK, config_for


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def recovering(upstream):
    """The upstream, whose model ``recovers`` waits to be released; it is, however the test ends."""
    upstream.forget()
    yield upstream
    upstream.released.set()


def opened(clock, rest=10.0):
    breaker = CircuitBreaker(rest, clock)
    for _ in range(FAILURES):
        breaker.failed(breaker.acquire())
    assert breaker.state is State.OPEN
    return breaker


def test_it_opens_after_failures_in_a_row_and_not_before(clock):
    breaker = CircuitBreaker(10.0, clock)
    nearly = [breaker.failed] * (FAILURES - 1)
    for outcome in (*nearly, breaker.succeeded, *nearly):
        outcome(breaker.acquire())
    assert breaker.state is State.CLOSED
    breaker.failed(breaker.acquire())
    assert (breaker.state, breaker.available, breaker.acquire()) == (State.OPEN, False, None)
    assert breaker.seconds_left == 10.0


def test_when_the_rest_is_over_one_attempt_probes_and_all_others_wait_for_its_outcome(clock):
    breaker = opened(clock)
    clock.now += 9.9
    assert breaker.acquire() is None
    clock.now += 0.1
    assert (breaker.state, breaker.available) == (State.HALF_OPEN, True)
    assert breaker.acquire() is Ticket.PROBE
    clock.now += 1000  # however long it takes
    assert (breaker.available, breaker.acquire()) == (False, None)


def test_a_probe_that_succeeds_closes_it(clock):
    breaker = opened(clock)
    clock.now += 10
    breaker.succeeded(breaker.acquire())
    assert breaker.state is State.CLOSED
    assert [breaker.acquire(), breaker.acquire()] == [Ticket.NORMAL] * 2
    breaker.failed()  # one failure after the probe is not enough to open it again
    assert breaker.state is State.CLOSED


def test_a_probe_that_fails_opens_it_for_another_rest(clock):
    breaker = opened(clock)
    clock.now += 10
    breaker.failed(breaker.acquire())
    assert (breaker.state, breaker.seconds_left) == (State.OPEN, 10.0)
    clock.now += 10
    assert breaker.acquire() is Ticket.PROBE


def test_a_probe_without_an_outcome_lets_the_next_one_probe(clock):
    breaker = opened(clock)
    clock.now += 10
    breaker.abandoned(breaker.acquire())
    assert (breaker.state, breaker.acquire()) == (State.HALF_OPEN, Ticket.PROBE)


def test_an_attempt_from_before_does_not_let_a_second_probe_out(clock):
    breaker = CircuitBreaker(10.0, clock)
    old = breaker.acquire()
    for _ in range(FAILURES):
        breaker.failed(breaker.acquire())
    clock.now += 10
    probe = breaker.acquire()
    breaker.failed(old)
    clock.now += 10
    assert breaker.acquire() is None  # the probe is still out
    breaker.succeeded(probe)
    assert breaker.state is State.CLOSED


def test_a_pause_keeps_requests_away_and_needs_no_probe(clock):
    breaker = CircuitBreaker(10.0, clock)
    breaker.pause(5.0)
    assert (breaker.state, breaker.acquire(), breaker.seconds_left) == (State.OPEN, None, 5.0)
    clock.now += 5
    assert (breaker.state, breaker.acquire()) == (State.CLOSED, Ticket.NORMAL)


def test_without_a_rest_it_never_opens(clock):
    breaker = CircuitBreaker(0.0, clock)
    for _ in range(100):
        breaker.failed(breaker.acquire())
    assert breaker.state is State.CLOSED


def test_requests_that_come_together_after_the_rest_send_one_probe_and_the_others_skip_the_model(
    start, bundle, recovering, tmp_path, known_prompts
):
    prompt = next(iter(known_prompts))
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}]}
    first = start(config_for(tmp_path, bundle, recovering.url)).http.post("/v1/route", json=body).json()["model"]
    (tmp_path / "recovering").mkdir()
    timing = QUICK.replace(answer=20, retries=0, breaker_rest=0.5)
    gateway = start(config_for(tmp_path / "recovering", bundle, recovering.url, {first: "recovers"}, timing=timing))
    for _ in range(FAILURES):
        assert gateway.chat(prompt).headers["x-fedrouter-instead-of"] == first
    time.sleep(0.6)
    served = []

    def request():
        record = gateway.record(gateway.chat(prompt))
        served.append((record.chosen, record.served, record.status))

    probe = threading.Thread(target=request)
    probe.start()
    while recovering.asked["recovers"] <= FAILURES:  # the probe is out, and its answer takes a while
        time.sleep(0.01)
    others = [threading.Thread(target=request) for _ in range(8)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert f'fedrouter_resting{{model="{first}"}} 1.0' in gateway.http.get("/metrics").text
    assert len(served) == 8
    assert all(chosen != first and model == chosen for chosen, model, _ in served)
    recovering.released.set()
    probe.join()
    assert recovering.asked["recovers"] == FAILURES + 1
    assert served[-1] == (first, first, "ok")
    assert gateway.chat(prompt).headers["x-fedrouter-model"] == first  # closed again
