"""Public keys of the other clients, pinned when the coordinator states them for the first time.

Clients that have not exchanged keys know each other's from the coordinator alone. It may lie in the first run, or about
a client that is new; it cannot change the key of one that is known: that is refused, unless the old key has signed the
new one (`fedrouter federation rekey` does). Members who compare the fingerprint of all keys over another channel
(`fedrouter federation status` shows it) know that all of them were told the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.secagg.identity import Identity, Roster

MOST_MEMBERS = 10_000
"""Names that a client remembers keys of; a coordinator may not fill its disk with more."""
MOST_SUCCESSIONS = 8
"""Changes of a key that its line tells of; a member that missed more of them refuses the key."""
ENTRY = "pinned keys"
"""Where they are in a client's memory."""


@dataclass(frozen=True)
class PinnedKey:
    """The public key of a client, and since when it has been known (seconds)."""

    key: str
    since: float


class PinnedKeys:
    """The keys that a client remembers of others; ``name`` and ``own`` are its own name and public key."""

    def __init__(self, memory: Memory, name: str, own: str) -> None:
        self._memory = memory
        self._name = name
        self._own = own

    def known(self) -> dict[str, PinnedKey]:
        """The pinned keys by client."""
        return self._read()[0]

    def stated(self) -> dict[str, str]:
        """What the coordinator stated last, whether it was accepted or not."""
        return self._read()[1]

    def admit(self, stated: Mapping[str, str]) -> dict[str, str]:
        """The keys that count in a run, by client; new ones are pinned. Raises Refused if one was replaced."""
        known, _ = self._read()
        if len({*known, *stated}) > MOST_MEMBERS:
            raise Refused(f"follow: keys of more than {MOST_MEMBERS:,} clients", "signature")
        if not same_key(stated.get(self._name, ""), self._own):
            raise Refused(f"follow: the coordinator states another key of this client, {self._name}", "signature")
        try:
            Roster.read(stated)
        except BadInput:
            raise BadMessage("follow: what the coordinator states as a public key is none") from None
        pinned = dict(known)
        for name, line in sorted(stated.items()):
            if name not in pinned:
                pinned[name] = PinnedKey(line, time.time())
            elif name == self._name or succeeds(name, pinned[name].key, line):
                pinned[name] = replace(pinned[name], key=line)
        changed = [name for name, line in sorted(stated.items()) if not same_key(pinned[name].key, line)]
        if changed:
            self._write(known, stated)
            raise Refused(
                f"follow: the coordinator states another key of {', '.join(changed)} than before, which the old key "
                "did not sign; exchange keys (`--peers`), or let it enroll under another name",
                "signature",
            )
        self._write(pinned, stated)
        return dict(stated)

    def _read(self) -> tuple[dict[str, PinnedKey], dict[str, str]]:
        found = self._memory.recall(ENTRY)
        if found is None:
            return {}, {}
        kept = json.loads(found["json"].tobytes())
        return {name: PinnedKey(entry["key"], entry["since"]) for name, entry in kept["members"].items()}, kept[
            "stated"
        ]

    def _write(self, pinned: Mapping[str, PinnedKey], stated: Mapping[str, str]) -> None:
        if (pinned, stated) == self._read():
            return
        kept = {"members": {name: asdict(pin) for name, pin in pinned.items()}, "stated": dict(stated)}
        self._memory.remember(ENTRY, {"json": np.frombuffer(json.dumps(kept).encode(), np.uint8)})


def same_key(first: str, second: str) -> bool:
    """Whether two lines hold the same public key."""
    return first.split()[:2] == second.split()[:2]


def roster_fingerprint(keys: Mapping[str, str]) -> str:
    """What members compare over another channel: 160 bits of the names and keys, so that no two rosters share it."""
    content = json.dumps([[name, *line.split()[:2]] for name, line in sorted(keys.items())])
    text = base64.b32encode(hashlib.sha256(content.encode()).digest()[:20]).decode()
    return "-".join(text[place : place + 4] for place in range(0, len(text), 4))


def succession(name: str, old: Identity, line: str, new: str) -> str:
    """The line of a ``new`` key with the signature of the one before, whose ``line`` may tell of earlier ones.

    The third word of a line, a comment for other programs, is a list of old keys, oldest first, each with its signature
    of the next.
    """
    algorithm, key, *earlier = line.split()
    signature = base64.b64encode(old.sign(*_succeeding(name, new.split()[1]))).decode()
    told = [*(earlier[0].split(",") if earlier else ()), f"{key}:{signature}"]
    return f"{algorithm} {new.split()[1]} {','.join(told[-MOST_SUCCESSIONS:])}"


def succeeds(name: str, old: str, new: str) -> bool:
    """Whether the line of the ``new`` key tells, signature by signature, that it takes the place of the ``old`` one."""
    algorithm, key, *told = new.split()
    steps = [step.partition(":")[::2] for step in told[0].split(",")] if told else []
    names = [step[0] for step in steps]
    if old.split()[1] not in names:
        return False
    steps = steps[names.index(old.split()[1]) :]
    following = [*(step[0] for step in steps[1:]), key]
    try:
        return all(
            Roster.read({name: f"{algorithm} {before}"}).signed(
                name, base64.b64decode(signature, validate=True), *_succeeding(name, after)
            )
            for (before, signature), after in zip(steps, following, strict=True)
        )
    except (BadInput, ValueError):
        return False


def _succeeding(name: str, key: str) -> tuple[str, str, str]:
    return "rekey", name, key
