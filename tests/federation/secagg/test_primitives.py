"""Primitives of the secure sum: words that wrap, masks that cancel, keys with one spelling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.errors import BadMessage
from fedrouter.federation.secagg.primitives import (
    FIELD,
    LARGEST,
    from_words,
    new_key,
    pack_words,
    pair_mask,
    seal,
    self_mask,
    shared_secret,
    to_words,
    unpack_words,
    unseal,
)

CONTEXT = bytes(32)
INTEGERS = st.lists(st.integers(1 - LARGEST, LARGEST - 1), min_size=1, max_size=20)


@settings(max_examples=50, deadline=None)
@given(INTEGERS)
def test_words_travel_unchanged_and_their_sums_wrap(values):
    vector = np.array(values, np.int64)
    words = to_words(vector)
    assert (from_words(unpack_words(pack_words(words))) == vector).all()
    masked = words + self_mask(bytes(32), CONTEXT, len(words))
    left = unpack_words(pack_words(masked)) - self_mask(bytes(32), CONTEXT, len(words))
    assert (from_words(left) == vector).all()


def test_a_number_that_does_not_fit_is_an_error():
    with pytest.raises(OverflowError):
        to_words(np.array([LARGEST]))
    with pytest.raises(BadMessage, match="words"):
        unpack_words(b"1234567")


def test_masks_of_a_pair_cancel_and_those_of_other_contexts_do_not():
    (one, other), (mine, theirs) = new_key(), new_key()
    secret = shared_secret(one, theirs)
    assert secret == shared_secret(mine, other)
    masks = [pair_mask("a", "b", secret, CONTEXT, 9), pair_mask("b", "a", secret, CONTEXT, 9)]
    assert not from_words(masks[0] + masks[1]).any()
    assert from_words(masks[0] + pair_mask("b", "a", secret, bytes(31) + b"1", 9)).any()
    assert (pair_mask("a", "b", secret, CONTEXT, 5) == masks[0][:5]).all()


@pytest.mark.parametrize(
    "public", [bytes(32), (FIELD + 9).to_bytes(32, "little"), b"short", (1).to_bytes(32, "little")]
)
def test_public_keys_that_are_none_are_refused(public):
    with pytest.raises(BadMessage, match="X25519"):
        shared_secret(new_key()[0], public)


def test_shares_are_for_one_recipient_in_one_context_and_one_direction():
    secret = bytes(range(32))
    sealed = seal(secret, CONTEXT, "a", "b", b"content")
    assert unseal(secret, CONTEXT, "a", "b", sealed) == b"content"
    for context, sender, receiver, content in (
        (bytes(31) + b"1", "a", "b", sealed),
        (CONTEXT, "b", "a", sealed),
        (CONTEXT, "a", "c", sealed),
        (CONTEXT, "a", "b", sealed[:-1] + b"x"),
        (CONTEXT, "a", "b", b""),
    ):
        with pytest.raises(BadMessage, match="not sealed"):
            unseal(secret, context, sender, receiver, content)
