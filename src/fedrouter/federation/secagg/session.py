"""What a client keeps of a secure aggregation between its steps, in its memory: one session, at one step."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.secagg.byte_arrays import BOTH, SHARE
from fedrouter.federation.secagg.crypto import as_bytes

OPEN_SESSION = "secure session"
KEYS = "has keys"
SHARED = "has shared its secrets"
READY = "ready for a sum"
MASKED = "has sent a masked vector"
AGREED = "has signed who is left"


@dataclass
class Session:
    """A client's side of a session. Bytes are written as hexadecimal digits, so that it can be kept as JSON.

    Parameters
    ----------
    id : the coordinator's name for it
    step : the last step that was taken
    sealing : private key to open shares with
    masking : private masking key of each sum that is still to come
    joint : the same for joint sums, of which nobody ever holds a share; empty if there are none
    seeds : seed of the own mask of each sum that is still to come
    context : digest of the clients and their keys
    names : all clients
    holders : those that hold the shares of this client's secrets
    public : public keys by client: for sealing, for each sum, for each joint sum; after the shares are delivered, of
        neighbors only
    held : shares that this client holds, by the client whose secrets they are; both shares of each sum
    index : the current sum, or the next one
    company : clients that were asked for the current sum
    questions : digests of what is asked in the current sum
    """

    id: str
    step: str
    sealing: str = ""
    masking: list[str] = field(default_factory=list)
    joint: list[str] = field(default_factory=list)
    seeds: list[str] = field(default_factory=list)
    context: str = ""
    names: list[str] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)
    public: dict[str, list[str]] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    index: int = 0
    company: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether everyone holds shares of everyone's secrets."""
        return len(self.holders) == len(self.names)

    def begin(self, index: int, company: list[str], questions: list[bytes]) -> None:
        """Move to a sum; the secrets of sums that were skipped are gone."""
        self._forget_before(index)
        self.step, self.company, self.questions = MASKED, company, [each.hex() for each in questions]

    def use_secrets(self, joint: bool) -> tuple[bytes, bytes]:
        """Masking key and seed of the current sum, which are forgotten: they serve once, for one kind of sum."""
        found = (self.joint if joint else self.masking)[self.index], self.seeds[self.index]
        self._forget(self.index)
        return bytes.fromhex(found[0]), bytes.fromhex(found[1])

    def public_key(self, name: str, joint: bool) -> bytes:
        """The key of ``name`` with which to agree on a mask of the current sum."""
        return bytes.fromhex(self.public[name][1 + joint * len(self.masking) + self.index])

    def share(self, name: str, of_key: bool) -> bytes:
        """The share that this client holds of a secret of ``name`` for the current sum."""
        start = self.index * BOTH + (SHARE if of_key else 0)
        return bytes.fromhex(self.held[name])[start : start + SHARE]

    def finish(self) -> None:
        """Forget what the current sum needed, and be ready for the next one."""
        self._forget_before(self.index + 1)
        self.step, self.company, self.questions = READY, [], []

    def _forget_before(self, index: int) -> None:
        for past in range(self.index, min(index, len(self.masking))):
            self._forget(past)
        nothing = "00" * BOTH * index
        self.held = {name: nothing + shares[len(nothing) :] for name, shares in self.held.items()}
        self.index = index

    def _forget(self, index: int) -> None:
        self.masking[index] = self.seeds[index] = ""
        if self.joint:
            self.joint[index] = ""

    def keep(self, memory: Memory) -> None:
        memory.remember(OPEN_SESSION, {"session": as_bytes(json.dumps(vars(self)).encode())})

    @classmethod
    def take(cls, memory: Memory) -> Session | None:
        """Take the session out of memory, so that of two concurrent steps only one finds it; None if there is none."""
        found = memory.take(OPEN_SESSION)
        return None if found is None or "session" not in found else cls(**json.loads(found["session"].tobytes()))
