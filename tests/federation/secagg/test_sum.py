"""The secure sum: totals equal to the bit under every allowed pattern of dropouts, and nothing for anybody else."""

from itertools import combinations

import numpy as np
import pytest

from fedrouter.errors import BadMessage
from fedrouter.federation.identity import Identity
from fedrouter.federation.secagg.aggregator import Aggregator
from fedrouter.federation.secagg.participant import Announcement, Participant, State, threshold

CONTEXT = bytes(32)


class Group:
    """Members and coordinator in this process; ``restart`` writes and reads every member's state between exchanges."""

    def __init__(self, count, restart=False, context=CONTEXT, length=50):
        self.keys = {f"m{index}": Identity.new() for index in range(count)}
        public = {name: key.public for name, key in self.keys.items()}
        self.members = {name: Participant(name, key, context, public) for name, key in self.keys.items()}
        self.restart, self.public, self.context = restart, public, context
        draw = np.random.default_rng(count)
        self.vectors = {name: draw.integers(-(2**40), 2**40, length) for name in self.keys}
        self.opened = {}

    def each(self, names, do):
        found = {}
        for name in names:
            found[name] = do(self.members[name])
            if self.restart:
                old = self.members[name]
                self.members[name] = Participant(
                    name, old.identity, old.context, old.members, State.unpack(old.state.pack())
                )
        return found

    def announce(self, names):
        self.announced = self.each(names, lambda member: member.announce(100, 1))

    def share(self, names):
        self.sealed = self.each(names, lambda member: member.share(self.announced))
        self.partners = sorted(names)

    def inbox(self, name):
        return {sender: self.sealed[sender][name] for sender in self.partners if sender != name}

    def mask(self, names):
        self.masked = self.each(names, lambda member: member.hide(self.inbox(member.name), self.vectors[member.name]))

    def agree(self, names):
        self.signatures = self.each(names, lambda member: member.agree(sorted(self.masked)))

    def unmask(self, names):
        self.opened = self.each(names, lambda member: member.open(self.signatures))

    def total(self):
        return Aggregator(self.context, self.public, self.announced, self.partners).total(self.masked, self.opened)


def run(group, left):
    """An epoch in which ``left[exchange]`` are those who still answer that exchange."""
    for exchange, names in zip(("announce", "share", "mask", "agree", "unmask"), left, strict=True):
        getattr(group, exchange)(names)
    return group.total()


@pytest.mark.parametrize("count", [3, 5, 10])
@pytest.mark.parametrize("restart", [False, True])
def test_the_total_is_the_sum_to_the_bit(count, restart):
    group = Group(count, restart)
    assert (run(group, [list(group.keys)] * 5) == sum(group.vectors.values())).all()


@pytest.mark.parametrize("count", [4, 5])
@pytest.mark.parametrize("exchange", range(5))
def test_every_allowed_pattern_of_dropouts_gives_the_sum_of_those_who_sent(count, exchange):
    least = threshold(count)
    for size in range(least, count):
        for stay in combinations([f"m{index}" for index in range(count)], size):
            group = Group(count, length=5)
            left = [list(group.keys)] * exchange + [list(stay)] * (5 - exchange)
            expected = sum(group.vectors[name] for name in left[2])
            assert (run(group, left) == expected).all()


def test_one_after_the_other_may_drop_out():
    group = Group(10)
    names = list(group.keys)
    assert (
        run(group, [names, names[:9], names[:8], names[:7], names[:7]])
        == sum(group.vectors[name] for name in names[:8])
    ).all()


def test_fewer_than_the_threshold_get_nothing():
    group = Group(5)
    names = list(group.keys)
    group.announce(names[:3])
    with pytest.raises(BadMessage, match="at least 4"):
        group.members["m0"].share(group.announced)
    group = Group(5)
    for exchange in ("announce", "share", "mask", "agree"):
        getattr(group, exchange)(names)
    group.signatures = dict(list(group.signatures.items())[:3])
    with pytest.raises(BadMessage, match="at least 4"):
        group.members["m0"].open(group.signatures)


def test_a_member_signs_one_list_of_survivors():
    group = Group(5)
    names = list(group.keys)
    for exchange in ("announce", "share", "mask", "agree"):
        getattr(group, exchange)(names)
    with pytest.raises(BadMessage, match="another list"):
        group.members["m0"].agree(names[:4])
    # Without its signature, the smaller list has too few.
    forged = group.signatures | {"m4": bytes(64), "m3": bytes(64)}
    with pytest.raises(BadMessage, match="at least 4"):
        group.members["m0"].open(forged)


def test_masks_of_members_told_different_things_do_not_cancel():
    group = Group(4)
    names = list(group.keys)
    group.announce(names)
    group.share(names)
    group.mask(names)
    other = dict(group.members)
    member = other["m0"]
    member.state = State(**{**vars(member.state), "received": None})
    masked = member.hide({name: group.sealed[name]["m0"] for name in names[1:3]}, group.vectors["m0"])
    group.masked["m0"] = masked
    group.agree(names[1:])
    with pytest.raises(BadMessage):
        group.unmask([*names[1:3], "m0"])


def test_other_terms_are_noticed_before_anything_is_shared():
    group, other = Group(3), Group(3, context=bytes(31) + b"1")
    group.announce(list(group.keys))
    other.announce(list(other.keys))
    stranger = other.members["m1"]
    forged = Participant("m1", group.keys["m1"], other.context, stranger.members).announce(100, 1)
    with pytest.raises(BadMessage, match="did not sign under these terms"):
        group.members["m0"].share(group.announced | {"m1": forged})


def test_a_key_that_stands_in_twice_is_refused():
    group = Group(3)
    group.announce(list(group.keys))
    copied = group.announced["m1"]
    signature = group.keys["m2"].sign("announcement", CONTEXT, copied.content)
    group.announced["m2"] = Announcement(copied.seal, copied.mask, copied.rows, copied.divisor, signature)
    with pytest.raises(BadMessage, match="stands in twice"):
        group.members["m0"].share(group.announced)


def test_wrong_shares_of_one_member_are_left_out_if_enough_others_are_there():
    group = Group(5)
    names = list(group.keys)
    for exchange in ("announce", "share", "mask", "agree", "unmask"):
        getattr(group, exchange)(names)
    group.opened["m1"] = {name: share[:-1] + bytes([share[-1] ^ 1]) for name, share in group.opened["m1"].items()}
    assert (group.total() == sum(group.vectors.values())).all()


def test_a_masked_vector_looks_random():
    group = Group(3, length=5_000)
    names = list(group.keys)
    for exchange in ("announce", "share", "mask"):
        getattr(group, exchange)(names)
    bits = np.unpackbits(np.frombuffer(group.masked["m0"], np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
