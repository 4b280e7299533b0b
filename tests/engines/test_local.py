"""The in-process engine keeps the contract of engines, and protects rows as a real federation does, or not at all."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from fedrouter.encoders.feature_map import UNIT
from fedrouter.engines.local import LocalFederation, shared_models
from fedrouter.errors import BadInput
from fedrouter.federation.families.bayes import learn
from fedrouter.federation.federation import EVERYONE
from fedrouter.federation.noise import Noise
from fedrouter.federation.verb import LEAST_IN_CENTROID
from fedrouter.release import Release
from fedrouter.testing.engines import ENGINE_CHECKS, REQUESTS, content
from fedrouter.testing.samples import POOL, sample_evaluations

ROWS = {name: sample_evaluations(100 + 20 * index, seed=index) for index, name in enumerate("abcd")}


@pytest.mark.parametrize("check", ENGINE_CHECKS)
def test_the_in_process_engine_keeps_the_contract(check):
    check(LocalFederation)


def total(privacy, seed=0, rows=ROWS):
    return learn(LocalFederation(rows, privacy, seed), POOL).total


def test_rows_are_seen_only_without_protection():
    assert LocalFederation(ROWS, "open").open_rows() is not None
    assert total("open") is None
    for privacy in ("default", "exact"):
        assert LocalFederation(ROWS, privacy).open_rows() is None


def test_noise_follows_from_the_seed_and_the_clients_name():
    once, again, other = (total("default", seed).vector() for seed in (1, 1, 2))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)
    exact = total("exact").vector()
    renamed = {name.upper(): rows for name, rows in ROWS.items()}
    assert not np.array_equal(once - exact, total("default", 1, renamed).vector() - exact)
    expected = Noise().total(len(ROWS)) * UNIT
    assert (once - exact).std() == pytest.approx(expected, rel=0.1)


def test_what_is_left_of_an_exact_total_is_what_the_others_sent():
    whole = total("exact")
    rest = whole - Release.of(ROWS["a"], whole.features)
    assert np.array_equal(rest.vector(), sum(Release.of(ROWS[name], whole.features).vector() for name in "bcd"))
    noisy = total("default")
    assert (noisy - Release.of(ROWS["a"], whole.features)).noise == noisy.noise > 0


def test_of_what_adds_up_only_the_total_is_seen_where_anything_is_protected():
    found = {kind: LocalFederation(ROWS, kind).ask("costs", REQUESTS["costs"]) for kind in ("open", "exact")}
    assert list(found["open"]) == list(ROWS)
    assert list(found["exact"]) == [EVERYONE]
    assert content(found["exact"][EVERYONE]) == content(reduce(add, found["open"].values()))


def test_no_centroid_stands_for_few_queries_where_anything_is_protected():
    few = {"a": sample_evaluations(12)}
    sizes = {
        kind: LocalFederation(few, kind).ask("cluster", REQUESTS["cluster"])["a"].sizes for kind in ("open", "exact")
    }
    assert sizes["exact"].min() >= LEAST_IN_CENTROID > sizes["open"].min()


def test_models_that_three_clients_have_evaluated_are_shared():
    one = ROWS["a"].take(np.flatnonzero(ROWS["a"].model == 0))
    rows = {"a": one, "b": one, "c": ROWS["c"]}
    assert shared_models(rows) == {POOL.names[0]}
    assert shared_models(rows, "open") == set(POOL.names)


@pytest.mark.parametrize(
    ("rows", "privacy", "words"), [(ROWS, "secret", "got 'secret'"), ({" ": ROWS["a"]}, "open", "name")]
)
def test_wrong_settings_are_refused(rows, privacy, words):
    with pytest.raises(BadInput, match=words):
        LocalFederation(rows, privacy)
