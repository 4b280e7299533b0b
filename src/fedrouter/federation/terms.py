"""Terms: what an epoch asks, of whom, under which constants, signed by the coordinator and chained to those before."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from fedrouter.encoders.feature_map import BITS, map_of_width
from fedrouter.errors import BadInput, BadMessage, FedrouterError
from fedrouter.evidence import CENTERS, DECADES
from fedrouter.federation.identity import KEY, SIGNATURE, Identity, digest, signed
from fedrouter.federation.noise import Noise
from fedrouter.federation.secagg.participant import LEAST_MEMBERS, MOST_MEMBERS
from fedrouter.federation.secagg.primitives import WORD
from fedrouter.pool import ModelPool
from fedrouter.release import COUNTS_SHARE, SECOND_SHARE

FORMAT: Final = 1
DAY: Final = 86_400
MOST_NAME, MOST_MODELS = 128, 256
MOST_TIME: Final = 2**37
"""Seconds since 1970 that a calendar has."""
HEAD: Final = 32
"""Bytes of a journal's head."""


@dataclass(frozen=True)
class Party:
    """A member in the terms: its identity key, and its journal's head as it last reported it (empty: not yet)."""

    key: bytes
    head: bytes = b""


@dataclass(frozen=True)
class Terms:
    """One epoch.

    Parameters
    ----------
    federation : its name
    epoch : number, from 1
    previous : digest of the terms before; empty for the first
    members : by name
    models : by name, how many members declare each, in the order of the vector
    encoder, dimension : of the embeddings, from which the feature map follows
    family, settings : what is learned
    epsilon, delta : of the release; ε 0 for no noise
    opened, seconds : when the epoch began (seconds since 1970), and for how long it can be resumed
    """

    federation: str
    epoch: int
    previous: bytes
    members: Mapping[str, Party]
    models: Mapping[str, int]
    encoder: str
    dimension: int
    epsilon: float = 8.0
    delta: float = 1e-6
    family: str = "bayes"
    settings: Mapping[str, Any] = field(default_factory=dict)
    opened: int = 0
    seconds: int = 7 * DAY

    @cached_property
    def content(self) -> bytes:
        """Canonical JSON: one spelling for one meaning."""
        members = {name: [each.key.hex(), each.head.hex()] for name, each in self.members.items()}
        document = {
            **vars(self),
            "format": FORMAT,
            "previous": self.previous.hex(),
            "members": members,
            "models": list(self.models.items()),
            "settings": dict(self.settings),
            "constants": constants(self.dimension),
        }
        document = {key: value for key, value in document.items() if key not in ("content", "digest", "pool")}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @cached_property
    def digest(self) -> bytes:
        return digest("terms", self.content)

    @cached_property
    def pool(self) -> ModelPool:
        return ModelPool(list(self.models))

    @property
    def keys(self) -> dict[str, bytes]:
        """Identity keys by member."""
        return {name: each.key for name, each in self.members.items()}

    def sign(self, coordinator: Identity) -> SignedTerms:
        self.check()
        return SignedTerms(self.content, coordinator.sign("terms", self.content))

    def check(self) -> None:
        """Raise BadInput if these terms cannot be terms."""
        Noise(self.epsilon, self.delta)
        for holds, what in (
            (LEAST_MEMBERS <= len(self.members) <= MOST_MEMBERS, f"{LEAST_MEMBERS} to {MOST_MEMBERS} members"),
            (len(set(self.keys.values())) == len(self.members), "a key of its own for each member"),
            (all(map(_is_name, (self.federation, self.encoder, *self.members, *self.models))), "names that print"),
            (all(len(each.key) == KEY and len(each.head) in (0, HEAD) for each in self.members.values()), "keys"),
            (1 <= len(self.models) <= MOST_MODELS, f"1 to {MOST_MODELS} models"),
            (all(type(each) is int and each >= 0 for each in self.models.values()), "counts of members"),
            (type(self.epoch) is int and self.epoch >= 1 and len(self.previous) in (0, 32), "an epoch's number"),
            (type(self.opened) is int and type(self.seconds) is int and self.seconds > 0, "times"),
        ):
            if not holds:
                raise BadInput(f"terms of epoch {self.epoch}: expected {what}")

    @classmethod
    def from_content(cls, content: bytes) -> Terms:
        """The terms that :attr:`content` came from; BadMessage for anything else, another spelling included."""
        try:
            document = json.loads(content)
            stated, version = document.pop("constants"), document.pop("format")
            document["previous"] = bytes.fromhex(document["previous"])
            document["members"] = {
                name: Party(*(bytes.fromhex(each) for each in pair)) for name, pair in document["members"].items()
            }
            document["models"] = dict(document["models"])
            found = cls(**document)
            found.check()
            known = version == FORMAT and stated == constants(found.dimension)
            if not known or found.content != content:
                raise BadInput("terms: another version, other constants, or another spelling")
        except (FedrouterError, ValueError, TypeError, KeyError, AttributeError):
            raise BadMessage("terms that this version does not read") from None
        return found


@dataclass(frozen=True)
class SignedTerms:
    """Terms as they travel."""

    content: bytes
    signature: bytes

    @cached_property
    def terms(self) -> Terms:
        return Terms.from_content(self.content)

    def verified(self, coordinator: bytes) -> Terms:
        """The terms, if the owner of this key signed them; else BadMessage."""
        if len(self.signature) != SIGNATURE or not signed(coordinator, self.signature, "terms", self.content):
            raise BadMessage("terms that the coordinator did not sign")
        return self.terms


def chained(terms: Sequence[Terms]) -> bool:
    """Whether each of these terms names the one before as its predecessor."""
    return all(
        later.previous == earlier.digest and later.epoch == earlier.epoch + 1
        for earlier, later in itertools.pairwise(terms)
    )


def in_utc(at: float) -> str:
    """A time, to the minute that is not before it."""
    return datetime.fromtimestamp(math.ceil(at / 60) * 60, UTC).strftime("%Y-%m-%d %H:%M")


def constants(dimension: int) -> dict[str, Any]:
    """Everything about the vector that everybody must do alike; none of it comes from a log."""
    return {
        "map": map_of_width(dimension).digest,
        "cost": [CENTERS[0], DECADES],
        "scales": [COUNTS_SHARE, SECOND_SHARE],
        "grid_bits": BITS,
        "word_bits": 8 * WORD,
    }


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MOST_NAME and name.isprintable() and name == name.strip()
