"""Frames, messages and verbs: what travels is read back unchanged, and anything else is BadMessage."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.errors import BadMessage
from fedrouter.federation.families.bayes import ReleaseRequest
from fedrouter.federation.frame import Frame
from fedrouter.federation.message import from_fields, to_fields
from fedrouter.federation.verb import VERBS, verb_named
from fedrouter.testing.engines import REQUESTS, content
from fedrouter.testing.samples import POOL, sample_evaluations
from fedrouter.testing.verbs import check_verb

ROWS = sample_evaluations()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text("xyz", min_size=1, max_size=3), VALUES, max_size=4))
def test_a_frame_is_read_back(fields):
    assert Frame.unpack(Frame("kind", fields).pack()).fields == fields


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_any_other_bytes_are_a_bad_message(content, place, byte):
    """Random bytes, and a good frame with one byte changed, are refused or read; nothing else happens."""
    good = bytearray(Frame("kind", {"a": b"123", "b": np.arange(3), "c": ["x"]}).pack())
    good[place % len(good)] = byte
    for each in (content, bytes(good)):
        try:
            found = Frame.unpack(each)
            found.array("b", "<i8", (3,))
            found.blob("a", 3)
        except BadMessage:
            pass


@pytest.mark.parametrize(
    "read",
    [
        lambda frame: frame.text("number"),
        lambda frame: frame.number("text", 0, 9),
        lambda frame: frame.number("number", 0, 3),
        lambda frame: frame.blob("blob", 2),
        lambda frame: frame.blobs("text"),
        lambda frame: frame.names("twice"),
        lambda frame: frame.array("nan", "<f8", (1,)),
        lambda frame: frame.array("missing", "<f8", (1,)),
        lambda frame: frame.arrays("text"),
    ],
)
def test_a_field_of_another_form_is_a_bad_message(read):
    fields = {"number": 4, "text": "a", "blob": b"123", "twice": ["a", "a"], "nan": np.array([np.nan])}
    with pytest.raises(BadMessage, match="wrong form"):
        read(Frame.unpack(Frame("kind", fields).pack()))


def test_an_array_cannot_claim_more_than_there_is():
    header = json.dumps(["kind", {"a": {"$array": ["<i8", [2**60]]}}]).encode()
    with pytest.raises(BadMessage):
        Frame.unpack(b"FR01" + len(header).to_bytes(4, "little") + header)


@pytest.mark.parametrize("verb", ["cluster", "statistics", "costs", "release"])
def test_every_verb_keeps_the_contract(verb):
    request = REQUESTS.get(verb) or ReleaseRequest(POOL.names)
    check_verb(VERBS[verb], ROWS, request)
    assert content(from_fields(type(request), Frame("ask", to_fields(request)))) == content(request)


def test_an_unknown_verb_is_a_bad_message():
    with pytest.raises(BadMessage, match="unknown verb"):
        verb_named("read-log")
