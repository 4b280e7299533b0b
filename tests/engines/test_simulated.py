"""A simulated federation has the privacy of a real one: totals equal to the bit to those of secure aggregation."""

import pytest

from fedrouter.engines.local import LocalFederation
from fedrouter.engines.simulated import simulated_federation
from fedrouter.engines.summed import LEAST_CLIENTS, SummedFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import LEAST_ACTIVE
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import PRIVACY
from fedrouter.federation.secagg import client as secagg_client
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.testing.engines import REQUESTS, SMALL
from fedrouter.testing.samples import POOL, sample_evaluations

ROWS = {name: sample_evaluations(100 + 20 * index, seed=index) for index, name in enumerate("abcd")}


def arrays(router):
    return {name: array.tobytes() for name, array in router.arrays().items()}


@pytest.mark.parametrize("name", ["kmeans", "linear", "mlp", "auto"])
def test_default_privacy_learns_the_router_that_secure_aggregation_learns(name):
    """Here the masks are made; the two routers are equal to the bit."""
    family = FAMILIES[name]
    settings = family.settings(**SMALL.get(name, {}))  # with the default participation
    masked = Secure(LocalFederation(Client(client, rows) for client, rows in ROWS.items()))
    expected = family.learn(masked, POOL, settings, 3)
    assert arrays(family.learn(simulated_federation(ROWS), POOL, settings, 3)) == arrays(expected)


def test_sums_are_totals_and_centroids_are_not():
    federation = simulated_federation(ROWS)
    assert list(federation.ask("cost_scale", REQUESTS["cost_scale"])) == [EVERYONE]
    assert list(federation.ask("cluster", REQUESTS["cluster"])) == list(ROWS)


def test_of_fewer_than_three_clients_there_is_no_secure_sum():
    assert LEAST_CLIENTS == LEAST_ACTIVE == secagg_client.LEAST_CLIENTS
    few = simulated_federation({name: ROWS[name] for name in "ab"})
    assert list(few.ask("cost_scale", REQUESTS["cost_scale"])) == ["a", "b"]


def test_open_and_plain_see_each_clients_sums():
    assert not isinstance(simulated_federation(ROWS, "open"), SummedFederation)
    assert not isinstance(simulated_federation(ROWS, "plain"), SummedFederation)


def test_small_clients_contribute_to_every_family_by_default_but_not_in_plain_sums():
    family, notes = FAMILIES["auto"], {privacy: [] for privacy in PRIVACY}
    for privacy, said in notes.items():
        federation = simulated_federation(ROWS, privacy)
        family.learn(federation, POOL, family.settings(), 0, lambda progress, said=said: said.extend(progress.notes))
    assert notes["default"] == notes["open"] == []
    assert any(note.startswith("linear: left out") for note in notes["plain"])


def test_another_word_is_refused():
    with pytest.raises(BadInput, match="expected default, plain, open, got 'secret'"):
        simulated_federation(ROWS, "secret")
