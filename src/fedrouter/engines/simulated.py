"""Simulated federations: the in-process engine with the privacy of a real federation, or with less.

`default` is what `fedrouter federation run` does unless told otherwise. Replies that add up are added as secure
aggregation adds them, and only the total is used; because totals are equal to the bit, no masks are made here. The
noise of a client's release follows from its name and the seed, so that a run can be repeated.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from fedrouter.engines.local import LocalFederation
from fedrouter.engines.summed import SummedFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Federation
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.policy import CLEAR, DEFAULT, OPEN, PRIVACY, UNPROTECTED
from fedrouter.federation.verbs.hello import LEAST_NAMING, HelloRequest


def simulated_federation(rows: Mapping[str, Evaluations], privacy: str = DEFAULT, seed: int = 0) -> Federation:
    """A federation in this process of clients that own these rows, by name; ``privacy`` is one of ``PRIVACY``."""
    if privacy not in PRIVACY:
        raise BadInput(f"privacy: expected {', '.join(PRIVACY)}, got {privacy!r}")
    if privacy == UNPROTECTED:
        return LocalFederation(Client(name, own, OPEN) for name, own in rows.items())
    noise = {name: Noise(seed=_seed_of(name, seed)) if privacy == DEFAULT else None for name in rows}
    return SummedFederation(Client(name, own, replace(CLEAR, noise=noise[name])) for name, own in rows.items())


def shared_models(rows: Mapping[str, Evaluations], privacy: str = DEFAULT) -> frozenset[str]:
    """The models that a real federation of these clients would learn: those that two of them name, or that one does
    who is alone. Without protection there is no such rule.
    """
    if privacy == UNPROTECTED:
        return frozenset(name for own in rows.values() for name in own.pool.names)
    replies = simulated_federation(rows, privacy).ask("hello", HelloRequest())
    named = Counter(model for reply in replies.values() for model in reply.models)
    least = min(LEAST_NAMING, len(replies))
    return frozenset(model for model, times in named.items() if times >= least)


def _seed_of(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big")
