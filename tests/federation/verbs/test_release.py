"""The noise that a member adds to its release does not depend on what the coordinator says."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.encoders.feature_map import UNIT
from fedrouter.errors import BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.policy import CLEAR, PrivacyPolicy
from fedrouter.federation.verbs.release import ReleaseRequest

ROWS = drawn_evaluations(queries=20)
REQUEST = ReleaseRequest(ROWS.pool.names)


def deviation(reply):
    return np.sqrt(reply.variance) / UNIT


def test_a_member_alone_in_a_sum_adds_all_of_the_noise():
    assert deviation(Client("one", ROWS, CLEAR).answer("release", REQUEST)) == pytest.approx(Noise().sigma, rel=1e-3)


@pytest.mark.parametrize("clients", [3, 4, 10])
def test_noise_is_divided_among_the_clients_of_the_sum_that_masks_it(clients):
    reply = Client("one", ROWS, PrivacyPolicy()).reply_to_mask("release", REQUEST, clients)
    assert deviation(reply) == pytest.approx(Noise().share(clients), rel=1e-3)


def test_a_coordinator_cannot_state_a_number_of_members():
    arrays, scalars = REQUEST.pack()
    with pytest.raises(BadMessage):
        ReleaseRequest.unpack((arrays, scalars.replace("{", '{"members": 100000, ', 1)))


def test_the_policy_of_a_real_member_refuses_a_release_in_the_clear():
    with pytest.raises(Refused, match="secure aggregation only"):
        Client("one", ROWS, PrivacyPolicy()).answer("release", REQUEST)
