"""Secret sharing: any threshold of shares recovers the secret, and shares that do not belong together are noticed."""

import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.errors import BadMessage
from fedrouter.federation.secagg.secret_sharing import INDEX, VALUE, combine, holder, split

SECRET = bytes(range(32))


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_threshold_of_shares_recovers_the_secret(secret, data):
    count = data.draw(st.integers(2, 12))
    threshold = data.draw(st.integers(2, count))
    shares = split(secret, threshold, count)
    assert {len(share) for share in shares} == {INDEX + VALUE}
    assert [holder(share) for share in shares] == list(range(1, count + 1))
    chosen = data.draw(st.permutations(shares))[:threshold]
    assert combine(chosen) == secret


def test_fewer_shares_than_the_threshold_recover_nothing():
    with pytest.raises(BadMessage, match="do not combine"):
        combine(split(SECRET, 3, 5)[:2])


@pytest.mark.parametrize("byte", range(INDEX, INDEX + VALUE, 7))
def test_one_changed_byte_is_noticed(byte):
    shares = [bytearray(share) for share in split(SECRET, 3, 4)]
    shares[1][byte] ^= 1
    with pytest.raises(BadMessage, match="do not combine"):
        combine([bytes(share) for share in shares[:3]])


def test_shares_of_different_secrets_do_not_combine():
    ours, theirs = (split(secrets.token_bytes(32), 2, 3) for _ in range(2))
    with pytest.raises(BadMessage, match="do not combine"):
        combine([ours[0], theirs[1]])


@pytest.mark.parametrize("change", [lambda share: share[:-1], lambda share: share[:20], lambda share: b""])
def test_shares_of_an_impossible_length_are_refused(change):
    shares = split(SECRET, 2, 2)
    with pytest.raises(BadMessage, match="do not combine"):
        combine([change(share) for share in shares])
    with pytest.raises(BadMessage, match="do not combine"):
        combine([shares[0], change(shares[1])])


def test_the_same_share_twice_is_refused():
    shares = split(SECRET, 2, 2)
    with pytest.raises(BadMessage, match="do not combine"):
        combine([shares[0], shares[0]])


def test_two_sharings_of_one_secret_have_nothing_in_common():
    first, second = split(SECRET, 2, 2), split(SECRET, 2, 2)
    assert all(one[4:] != other[4:] for one, other in zip(first, second, strict=True))


def test_a_secret_of_an_odd_length_is_refused():
    with pytest.raises(ValueError, match="must have 32 bytes"):
        split(b"short", 2, 3)


@pytest.mark.parametrize("threshold", [0, 1, 4])
def test_a_threshold_that_protects_nothing_or_cannot_be_met_is_refused(threshold):
    with pytest.raises(ValueError, match="between 2 and the number of shares 3"):
        split(bytes(32), threshold, 3)
