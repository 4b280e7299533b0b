"""Keys that a coordinator stated once cannot be changed by it later."""

from dataclasses import replace

import pytest

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedrouter.errors import BadMessage, Refused
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.secagg import pinned_keys
from fedrouter.federation.secagg.identity import CURVE, Identity
from fedrouter.federation.secagg.pinned_keys import PinnedKeys, roster_fingerprint, same_key, succeeds, succession


def drawn():
    key = ec.generate_private_key(CURVE)
    return Identity(key, {}), key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


MEMBERS = {name: drawn() for name in ("north", "south", "west")}
LINES = {name: line for name, (_, line) in MEMBERS.items()}


@pytest.fixture
def pins():
    return PinnedKeys(ShortMemory(), "north", LINES["north"])


def test_keys_are_pinned_at_first_sight_and_cannot_be_replaced(pins):
    assert pins.admit(LINES) == LINES
    other = {**LINES, "south": drawn()[1]}
    with pytest.raises(Refused, match="another key of south"):
        pins.admit(other)
    assert same_key(pins.known()["south"].key, LINES["south"])
    assert pins.admit(LINES) == LINES
    with pytest.raises(Refused):
        pins.admit(other)


def test_a_member_that_left_is_still_known_when_it_returns(pins):
    pins.admit(LINES)
    assert set(pins.admit({name: LINES[name] for name in ("north", "west")})) == {"north", "west"}
    with pytest.raises(Refused, match="another key of south"):
        pins.admit({**LINES, "south": drawn()[1]})


def test_a_key_that_the_old_one_signed_takes_its_place(pins):
    pins.admit(LINES)
    (old, line), (middle, second), (_, last) = MEMBERS["south"], drawn(), drawn()
    first_change = succession("south", old, line, second)
    second_change = succession("south", middle, first_change, last)
    assert succeeds("south", line, first_change)
    assert succeeds("south", line, second_change)  # for members that missed the change in between
    assert succeeds("south", first_change, second_change)
    assert not succeeds("west", line, first_change)
    assert not succeeds("south", LINES["west"], first_change)
    assert pins.admit({**LINES, "south": second_change})["south"] == second_change
    with pytest.raises(Refused):
        pins.admit(LINES)


def test_a_succession_that_somebody_else_signed_is_refused(pins):
    pins.admit(LINES)
    thief, line = drawn()
    for forged in (succession("south", thief, LINES["south"], line), f"{line} {LINES['south'].split()[1]}:AAAA", line):
        with pytest.raises(Refused, match="another key of south"):
            pins.admit({**LINES, "south": forged})


def test_what_is_no_key_and_more_names_than_there_can_be_are_refused(pins, monkeypatch):
    with pytest.raises(BadMessage):
        pins.admit({**LINES, "south": "ssh-rsa AAAA"})
    with pytest.raises(Refused, match="another key of this client"):
        pins.admit({"south": LINES["south"]})
    monkeypatch.setattr(pinned_keys, "MOST_MEMBERS", 2)
    with pytest.raises(Refused, match="more than 2 clients"):
        pins.admit(LINES)
    assert not pins.known()


def test_the_fingerprint_depends_on_every_name_and_key():
    base = roster_fingerprint(LINES)
    assert len(base.replace("-", "")) == 32
    assert roster_fingerprint({name: f"{line} a comment" for name, line in LINES.items()}) == base
    assert roster_fingerprint({**LINES, "south": LINES["west"], "west": LINES["south"]}) != base
    assert roster_fingerprint({name: line for name, line in LINES.items() if name != "west"}) != base


def test_without_pins_what_the_coordinator_states_does_not_matter():
    identity = replace(MEMBERS["north"][0], roster={"north": MEMBERS["north"][0].key.public_key()})
    assert identity.meeting({"south": "nonsense"}) is identity
