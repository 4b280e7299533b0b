"""The handshake of a run: clients with other weights of the encoder are excluded; the bundle names the common ones."""

from dataclasses import replace

import pytest

from conftest import drawn_evaluations
from fedrouter.deployment.runs.handshake import shake_hands
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Federation
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.verbs.hello import Hello, HelloRequest

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


@pytest.mark.parametrize(
    "name",
    ["\ud800", "a\nb", "\x1b[31mred", "a\u202eb", "zero\u200bwidth", "x" * 129, "", "  ", " padded ", "\x00", 7, None],
)
def test_names_that_cannot_be_stored_printed_or_compared_are_refused(name):
    for parts in ((name, "mini", ("m",)), ("a", name, ("m",)), ("a", "mini", (name,))):
        with pytest.raises(BadMessage, match="printable text of 1 to 128 characters"):
            Hello(parts[0], parts[1], 8, True, parts[2])


def test_thousands_of_models_are_refused():
    Hello("a", "mini", 8, True, tuple(f"model-{index}" for index in range(256)))
    with pytest.raises(BadMessage, match="models must be at most 256"):
        Hello("a", "mini", 8, True, tuple(f"model-{index}" for index in range(257)))


def test_a_client_with_another_wire_format_is_excluded_and_says_its_version():
    class Newer(Federation):
        """A federation of which one client speaks a later wire format."""

        def __init__(self, federation):
            self.federation = federation

        def clients(self):
            return self.federation.clients()

        def ask(self, verb, payload, to=None):
            replies = dict(self.federation.ask(verb, payload, to))
            return replies | {"client-1": replace(replies["client-1"], wire=99, version="9.0")}

    excluded = {}
    clients = [Client(f"client-{index}", drawn_evaluations(queries=120, seed=index)) for index in range(2)]
    found = shake_hands(Newer(LocalFederation(clients)), lambda name, verb, why: excluded.update({name: why}))
    assert found.federation.clients() == ("client-0",)
    assert excluded["client-1"].startswith("speaks wire format 99 (fedrouter 9.0), this coordinator")


def test_a_client_refuses_a_coordinator_with_another_wire_format():
    client = Client("a", drawn_evaluations(queries=120))
    with pytest.raises(Refused, match="install the same version on both sides") as refused:
        client.answer("hello", HelloRequest("9.0", 99))
    assert refused.value.reason == "version"


@pytest.mark.parametrize("models", [("\ud800",), tuple(f"model-{index}" for index in range(2000))])
def test_a_resumed_run_asks_again_instead_of_using_hostile_names_from_its_checkpoint(models, tmp_path):
    honest = LocalFederation([Client("client-0", drawn_evaluations(queries=120))])

    class Poisoned(Federation):
        """What a version without limits accepted and wrote down."""

        def clients(self):
            return honest.clients()

        def ask(self, verb, payload, to=None):
            reply = Hello("client-0", "unnamed", 8, True, ("model-0",))
            object.__setattr__(reply, "models", models)
            return {"client-0": reply}

    Checkpointed(Poisoned(), tmp_path).ask("hello", HelloRequest())
    assert len(list(tmp_path.glob("*-hello.*"))) == 1
    found = shake_hands(Checkpointed(honest, tmp_path), lambda *report: None)
    assert set(found.models) == {"model-0", "model-1", "model-2"}
