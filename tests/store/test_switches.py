"""Which bundle is current: one switch for every gateway on the store, and a way back."""

import pytest

from fedrouter.errors import BadInput
from fedrouter.store.store import Store


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


def test_a_switch_by_one_gateway_is_seen_by_another(store, url):
    assert (store.current(), store.previous()) == (None, None)
    store.set_current("sha256:a", "bundles/a")
    with Store.open(url) as other:
        assert (other.current().digest, other.current().path) == ("sha256:a", "bundles/a")
        other.set_current("sha256:b", "bundles/b")
    assert store.current().digest == "sha256:b"
    assert store.previous().digest == "sha256:a"


def test_gateways_that_start_with_the_same_bundle_add_no_switch(store):
    first = store.set_current("sha256:a", "bundles/a")
    assert store.set_current("sha256:a", "bundles/a") == first
    assert store.previous() is None


def test_rolling_back_goes_back_one_by_one_and_in_the_end_to_what_is_learned(store):
    for name in "abc":
        store.set_current(f"sha256:{name}", name)
    assert store.roll_back().digest == "sha256:b"
    assert store.roll_back().digest == "sha256:a"
    assert store.roll_back() is None
    assert store.current() is None
    with pytest.raises(BadInput, match=r"serve what they learn"):
        store.roll_back()


def test_after_a_rollback_the_withdrawn_bundle_can_come_back(store):
    store.set_current("sha256:a", "a")
    store.set_current("sha256:b", "b")
    store.roll_back()
    store.set_current("sha256:b", "b")
    assert (store.current().digest, store.previous().digest) == ("sha256:b", "sha256:a")
