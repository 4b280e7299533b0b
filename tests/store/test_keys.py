"""API keys: shown once, kept as a hash, closed for good."""

import threading

import pytest

from fedrouter.errors import BadInput
from fedrouter.store.store import Store


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


def test_a_token_opens_its_key_and_nothing_else_does(store):
    identity, token = store.create_key("web", daily_budget=2.5, rate_per_minute=60)
    other, _ = store.create_key("web")
    key = store.key_of(token)
    assert (key.id, key.name, key.daily_budget, key.rate_per_minute, key.admin) == (identity, "web", 2.5, 60, False)
    assert identity != other
    for wrong in ("", token[:-1], token + "x", token.swapcase(), identity, "\ud800"):
        assert store.key_of(wrong) is None


def test_a_token_has_256_random_bits_and_is_not_in_the_file(tmp_path):
    path = tmp_path / "log.db"
    with Store.open(f"sqlite:///{path}") as store:
        tokens = [store.create_key("web")[1] for _ in range(3)]
    assert all(len(token.removeprefix("fr-")) == 43 for token in tokens)  # 32 bytes in base64
    assert not any(token.encode() in path.read_bytes() for token in tokens)


def test_a_disabled_key_opens_nothing_but_is_still_listed(store):
    identity, token = store.create_key("web")
    assert store.disable_key(identity)
    assert store.key_of(token) is None
    assert [(key.id, key.disabled) for key in store.all_keys()] == [(identity, True)]
    assert not store.disable_key("key-nobody")
    assert not store.disable_key(identity)
    assert store.edit_key(identity, {"name": "again"}) is None


def test_of_many_gateways_that_start_at_once_one_makes_the_first_key(store):
    made = []
    threads = [threading.Thread(target=lambda: made.append(store.create_first_key("first"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found is not None for found in made) == 1
    assert len(store.all_keys()) == 1
    assert store.create_first_key("again") is None


def test_the_first_key_is_an_admin_s_and_others_are_only_if_that_is_asked_for(store):
    first = store.create_first_key("first")[1]
    other, second = store.create_key("web")[1], store.create_key("operator", admin=True)[1]
    assert [store.key_of(token).admin for token in (first, other, second)] == [True, False, True]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"name": " "}, "name"),
        ({"name": "a", "daily_budget": -1.0}, "daily_budget"),
        ({"name": "a", "daily_budget": float("nan")}, "daily_budget"),
        ({"name": "a", "rate_per_minute": 0}, "rate_per_minute"),
        ({"name": "a", "models": []}, "models"),
        ({"name": "a", "models": "small"}, "models"),
        ({"name": "a", "dial": 11.0}, "dial"),
        ({"name": "a", "dial": 5.0, "quality": 0.9}, "quality"),
        ({"name": "a", "max_cost": -1.0}, "max_cost"),
        ({"name": "a", "color": "red"}, "color"),
    ],
)
def test_a_key_with_a_wrong_setting_is_refused_by_field(store, settings, field):
    with pytest.raises(BadInput, match=f"'{field}'"):
        store.create_key(**settings)
    assert store.all_keys() == []


def test_settings_of_a_key_are_kept_changed_and_removed(store):
    identity, token = store.create_key("web", models=["small", "large-*"], dial=7.0, max_cost=0.05)
    key = store.key_of(token)
    assert (key.models, key.dial, key.quality, key.max_cost) == (("small", "large-*"), 7.0, None, 0.05)
    assert (key.allows("small"), key.allows("large-2"), key.allows("other")) == (True, True, False)
    changed = store.edit_key(identity, {"models": None, "dial": None, "quality": 0.9, "daily_budget": 2.0})
    assert changed == store.key_of(token)
    assert (changed.models, changed.dial, changed.quality, changed.max_cost) == (None, None, 0.9, 0.05)
    assert (changed.name, changed.daily_budget, changed.allows("other")) == ("web", 2.0, True)
    with pytest.raises(BadInput, match="not both"):  # together with what it has
        store.edit_key(identity, {"dial": 1.0})
    assert store.edit_key("key-nobody", {"dial": 1.0}) is None
    assert store.edit_key(identity, {"expires": 1.0}).expires == 1.0
    assert store.key_of(token) is None
