"""Wrong sign-ins are limited by address; right ones are not, and the table of addresses is bounded."""

import pytest

from fedrouter.gateway import access
from fedrouter.gateway.access import SIGN_INS, SignIns, network_of
from fedrouter.gateway.http import HttpError


class Wrong(Exception):
    pass


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    return now


def wrong(attempts: SignIns, address: str) -> None:
    with pytest.raises(Wrong), attempts.attempt(address):
        raise Wrong


def test_wrong_sign_ins_of_one_address_are_refused_for_a_while(clock):
    attempts = SignIns()
    for _ in range(SIGN_INS):
        wrong(attempts, "192.0.2.1")
    with pytest.raises(HttpError) as refused, attempts.attempt("192.0.2.1"):
        pass
    assert (refused.value.status, dict(refused.value.headers)[b"retry-after"]) == (429, b"3")
    wrong(attempts, "192.0.2.2")
    clock[0] += 60 / SIGN_INS
    wrong(attempts, "192.0.2.1")


def test_right_sign_ins_do_not_count_but_those_under_way_do(clock):
    attempts = SignIns()
    for _ in range(3 * SIGN_INS):
        with attempts.attempt("192.0.2.1"):
            pass
    under_way = [attempts.attempt("192.0.2.1") for _ in range(SIGN_INS)]
    for each in under_way:
        each.__enter__()
    with pytest.raises(HttpError), attempts.attempt("192.0.2.1"):
        pass
    for each in under_way:
        each.__exit__(None, None, None)
    with attempts.attempt("192.0.2.1"):
        pass


def test_the_table_is_bounded_and_an_address_of_ipv6_is_its_first_half(clock, monkeypatch):
    monkeypatch.setattr(access, "MAX_NAMES", 5)
    attempts = SignIns()
    for number in range(50):
        wrong(attempts, f"192.0.2.{number}")
    assert len(attempts._buckets._buckets) == 5
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff%eth0") != network_of("2001:db8:0:1::1")
    assert network_of("") == ""


def test_addresses_of_ipv4_at_a_socket_for_both_are_limited_one_by_one(clock):
    attempts = SignIns()
    for _ in range(SIGN_INS):
        wrong(attempts, "::ffff:192.0.2.1")
    with attempts.attempt("::ffff:192.0.2.2"):
        pass
    with pytest.raises(HttpError), attempts.attempt("192.0.2.1"):
        pass
