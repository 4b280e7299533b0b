"""Keys, encryption and signatures of secure aggregation, and that none of it needs Flower."""

import subprocess
import sys

import pytest

pytest.importorskip("cryptography")

from fedrouter.errors import BadMessage
from fedrouter.federation.secagg.crypto import (
    new_key,
    private_key,
    public_key,
    seal,
    shared_secret,
    unseal,
)

CONTEXT = b"context of a session"


def test_two_owners_of_keys_agree_on_a_secret_that_a_third_does_not_have():
    (one, one_public), (two, two_public), (three, _) = new_key(), new_key(), new_key()
    assert public_key(one) == one_public
    agreed = shared_secret(private_key(one), two_public)
    assert agreed == shared_secret(private_key(two), one_public)
    assert agreed != shared_secret(private_key(three), two_public)


LOW_ORDER = (0, 1, 2**255 - 20)
"""Points with which every secret would be the same."""


@pytest.mark.parametrize("public", [b"", b"rubbish", b"\xff" * 31, *(p.to_bytes(32, "little") for p in LOW_ORDER)])
def test_what_is_no_key_is_refused(public):
    with pytest.raises(BadMessage, match="X25519"):
        shared_secret(private_key(new_key()[0]), public)


def test_a_key_in_another_spelling_is_refused_because_it_could_stand_in_for_a_second_one():
    public = new_key()[1]
    with_high_bit = public[:-1] + bytes([public[-1] | 128])  # X25519 ignores this bit
    with pytest.raises(BadMessage, match="X25519"):
        shared_secret(private_key(new_key()[0]), with_high_bit)


def test_only_the_recipient_reads_what_was_sealed_and_only_unchanged():
    sealed = seal(b"secret", CONTEXT, "a", "b", b"shares")
    assert unseal(b"secret", CONTEXT, "a", "b", sealed) == b"shares"
    assert seal(b"secret", CONTEXT, "a", "b", b"shares") != sealed
    wrong = [
        (b"other", CONTEXT, "a", "b", sealed),
        (b"secret", b"other context", "a", "b", sealed),
        (b"secret", CONTEXT, "b", "a", sealed),
        (b"secret", CONTEXT, "a", "c", sealed),
        *(
            (b"secret", CONTEXT, "a", "b", sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])
            for at in (0, 13, -1 % len(sealed))
        ),
        (b"secret", CONTEXT, "a", "b", sealed[:-1]),
        (b"secret", CONTEXT, "a", "b", b""),
    ]
    for arguments in wrong:
        with pytest.raises(BadMessage, match="not sealed for this client"):
            unseal(*arguments)


WITHOUT_FLOWER = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "flwr":
            raise ImportError("flwr is not installed")

sys.meta_path.insert(0, Absent())
sys.path.insert(0, sys.argv[1])

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.secagg.server import Secure
from fedrouter.pool import ModelPool

def learned(wrap):
    clients = [Client(name, drawn_evaluations(queries=80, seed=ord(name))) for name in "abc"]
    return FAMILIES["kmeans"].learn(wrap(LocalFederation(clients)), ModelPool(["model-0", "model-1", "model-2"]))

plain, secure = learned(lambda federation: federation).arrays(), learned(Secure).arrays()
assert all(array.tobytes() == plain[name].tobytes() for name, array in secure.items())
assert "flwr" not in sys.modules
"""


def test_secure_aggregation_works_without_flower(request):
    tests = str(request.config.rootpath / "tests")
    subprocess.run([sys.executable, "-c", WITHOUT_FLOWER, tests], check=True)
