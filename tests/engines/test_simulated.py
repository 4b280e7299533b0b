"""A simulated federation has the privacy of a real one: totals equal to the bit to those of secure aggregation."""

import numpy as np
import pytest

from fedrouter.encoders.feature_map import UNIT
from fedrouter.engines.local import LocalFederation
from fedrouter.engines.simulated import simulated_federation
from fedrouter.engines.summed import LEAST_CLIENTS
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.bayes import learn
from fedrouter.federation.families.mlp import LEAST_ACTIVE
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.noise import Noise
from fedrouter.federation.secagg import client as secagg_client
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.release import Release
from fedrouter.testing.engines import REQUESTS, SMALL
from fedrouter.testing.samples import POOL, sample_evaluations

ROWS = {name: sample_evaluations(100 + 20 * index, seed=index) for index, name in enumerate("abcd")}


def arrays(router):
    return {name: array.tobytes() for name, array in router.arrays().items()}


@pytest.mark.parametrize("name", ["kmeans", "mlp"])
def test_default_privacy_learns_the_router_that_secure_aggregation_learns(name):
    """Here the masks are made; the two routers are equal to the bit."""
    family = FAMILIES[name]
    settings = family.settings(**SMALL.get(name, {}))  # with the default participation
    masked = Secure(LocalFederation(Client(client, rows) for client, rows in ROWS.items()))
    expected = family.learn(masked, POOL, settings, 3)
    assert arrays(family.learn(simulated_federation(ROWS), POOL, settings, 3)) == arrays(expected)


def test_sums_are_totals_and_centroids_are_not():
    federation = simulated_federation(ROWS)
    assert list(federation.ask("costs", REQUESTS["costs"])) == [EVERYONE]
    assert list(federation.ask("cluster", REQUESTS["cluster"])) == list(ROWS)


def test_of_fewer_than_three_clients_there_is_no_secure_sum():
    assert LEAST_CLIENTS == LEAST_ACTIVE == secagg_client.LEAST_CLIENTS
    few = simulated_federation({name: ROWS[name] for name in "ab"})
    assert list(few.ask("costs", REQUESTS["costs"])) == ["a", "b"]


def total(privacy, seed=0, rows=ROWS):
    return learn(simulated_federation(rows, privacy, seed), POOL).total


def test_rows_are_seen_only_without_protection():
    assert simulated_federation(ROWS, "open").open_rows() is not None
    assert total("open") is None
    for privacy in ("default", "exact"):
        assert simulated_federation(ROWS, privacy).open_rows() is None


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


def test_another_word_is_refused():
    with pytest.raises(BadInput, match="expected default, exact, open, got 'secret'"):
        simulated_federation(ROWS, "secret")
