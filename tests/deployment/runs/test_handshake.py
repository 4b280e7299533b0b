"""The handshake of a run: clients with other weights of the encoder are excluded; the bundle names the common ones."""

import pytest

from conftest import drawn_evaluations
from fedrouter.deployment.runs.handshake import shake_hands
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage
from fedrouter.federation.client import Client
from fedrouter.federation.verbs.hello import Hello

ONE, TWO = ("sha256:" + digit * 64 for digit in "12")


def shaken(weights, encoder=None):
    """The handshake of clients with these weights, and those that were excluded with the reason."""
    excluded = {}
    clients = [
        Client(f"client-{index}", drawn_evaluations(queries=120, seed=index), encoder="mini", weights=each)
        for index, each in enumerate(weights)
    ]
    return shake_hands(
        LocalFederation(clients), lambda name, verb, why: excluded.update({name: why}), encoder
    ), excluded


def test_weights_that_all_clients_state_are_part_of_the_encoder():
    found, excluded = shaken([ONE, ONE])
    assert found.encoder == EncoderIdentity("mini", 8, True, ONE)
    assert not excluded


@pytest.mark.parametrize("weights", [[None, None], [ONE, None]])
def test_weights_that_a_client_does_not_know_are_left_out_of_the_encoder(weights):
    found, excluded = shaken(weights)
    assert found.encoder == EncoderIdentity("mini", 8, True)
    assert not excluded
    assert len(found.federation.clients()) == 2


def test_a_client_with_other_weights_is_excluded():
    found, excluded = shaken([ONE, TWO, ONE])
    assert found.encoder.weights == ONE
    assert excluded == {"client-1": f"uses other weights of the encoder: {TWO} instead of {ONE}"}


def test_the_weights_of_a_bundle_that_is_extended_decide():
    bundle = EncoderIdentity("mini", 8, True, TWO)
    found, excluded = shaken([ONE, TWO, ONE, None], bundle)
    assert found.encoder == bundle
    assert found.federation.clients() == ("client-1", "client-3")
    assert len(excluded) == 2


def test_clients_that_do_not_agree_on_weights_are_an_error():
    with pytest.raises(BadInput, match="do not agree on the encoder's weights"):
        shaken([ONE, TWO])


@pytest.mark.parametrize("weights", ["sha256:", "md5:1", "sha256:" + "1" * 63, "SHA256:" + "1" * 64])
def test_weights_that_are_no_digest_are_refused(weights):
    with pytest.raises(BadMessage, match="weights must be a sha256 digest"):
        Hello("a", "mini", 8, True, ("model-0",), weights)
