"""Options of one request: where they come from, which takes precedence, and what is rejected."""

import pytest

from fedrouter.gateway.http import HttpError
from fedrouter.gateway.routing.request import DEFAULTS, NAMES, RequestOptions, read_options

POOL = {"small": 0, "large": 1}


def options(inside=None, model="auto", **headers):
    given = {f"x-fedrouter-{name.replace('_', '-')}".encode(): value.encode() for name, value in headers.items()}
    return read_options({b"host": b"x", **given}, inside, model, POOL, "bayes")


def error(*arguments, **headers):
    with pytest.raises(HttpError) as caught:
        options(*arguments, **headers)
    assert caught.value.status == (404 if caught.value.code == "model_not_found" else 400)
    return caught.value.param, caught.value.code


def test_a_request_without_options_gets_the_defaults_without_validation():
    found, named = options()
    assert found is DEFAULTS
    assert named is None
    assert options({}) == options({"tradeoff": None, "off": None}) == (DEFAULTS, None)


def test_options_come_from_the_body_then_headers_then_the_model_name():
    assert options({"tradeoff": 5})[0].tradeoff == 5
    assert options({"tradeoff": 5}, tradeoff="7")[0].tradeoff == 5
    assert options(tradeoff="7", model="router-bayes-9")[0].tradeoff == 7
    assert options(model="router-bayes-9")[0].tradeoff == 9
    assert options({"dial": 3}, model="router-bayes-9")[0] == RequestOptions(dial=3)
    assert options({"dial": 3}, tradeoff="7")[0] == RequestOptions(dial=3)
    assert options(model="large") == (DEFAULTS, "large")


def test_headers_are_read_by_type():
    found, _ = options(allow="a*, b", off="TRUE", explain="0", max_price="2.5", session="s", task="t", expected="e")
    assert (found.allow, found.off, found.explain, found.max_price) == (("a*", "b"), True, False, 2.5)
    assert (found.session, found.task, found.expected) == ("s", "t", "e")


def test_one_name_may_stand_for_a_list():
    assert options({"allow": "small"})[0].allow == options({"allow": ["small"]})[0].allow == ("small",)


@pytest.mark.parametrize(
    ("inside", "param"),
    [
        ({"tradeoff": -1}, "fedrouter.tradeoff"),
        ({"tradeoff": 1e13}, "fedrouter.tradeoff"),
        ({"tradeoff": 10**400}, "fedrouter.tradeoff"),
        ({"tradeoff": True}, "fedrouter.tradeoff"),
        ({"tradeoff": "5"}, "fedrouter.tradeoff"),
        ({"dial": 10.5}, "fedrouter.dial"),
        ({"dial": 5, "tradeoff": 5}, "fedrouter.dial"),
        ({"allow": []}, "fedrouter.allow"),
        ({"allow": ["a"] * 101}, "fedrouter.allow"),
        ({"allow": ["a" * 201]}, "fedrouter.allow"),
        ({"allow": {"a": 1}}, "fedrouter.allow"),
        ({"session": ""}, "fedrouter.session"),
        ({"task": "two\nlines"}, "fedrouter.task"),
        ({"expected": 4}, "fedrouter.expected"),
        ({"explain": 1}, "fedrouter.explain"),
        ({"tradeof": 1, "dial": 11}, "fedrouter"),
        ({"tradeof": None}, "fedrouter"),
        ([], "fedrouter"),
    ],
)
def test_a_wrong_option_is_rejected_by_its_name(inside, param):
    assert error(inside) == (param, "invalid_value")


def test_wrong_headers_and_model_names_are_rejected():
    assert error(tradeof="1") == ("x-fedrouter-tradeof", "invalid_value")
    assert error(dial="many") == ("x-fedrouter-dial", "invalid_value")
    assert error(dial="nan") == ("fedrouter.dial", "invalid_value")
    assert error(off="yes") == ("x-fedrouter-off", "invalid_value")
    assert error({"task": "t"}, task="x" * 201) == ("fedrouter.task", "invalid_value")  # though the body overrides it
    assert error(None, "router-mlp-3") == ("model", "model_not_found")
    assert error({"dial": 3}, "router-bayes-inf") == ("model", "model_not_found")
    assert error(None, "nobody") == ("model", "model_not_found")
    assert error(None, None) == ("model", "invalid_value")


def test_every_option_is_described():
    assert all(field.description for field in RequestOptions.model_fields.values())
    assert tuple(RequestOptions.model_fields) == NAMES
