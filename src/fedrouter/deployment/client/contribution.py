"""What a client's own rows change in the router, and what the others' rows give it, on its own log.

A router of sums is everybody's sums added up, and a client knows its own: it subtracts them, here, and asks nobody.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.bundle import load
from fedrouter.deployment.client.local_client import client_of, evaluations_of
from fedrouter.deployment.state.delivered import current
from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import family
from fedrouter.federation.gain import TRADEOFFS, Gain, gain
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.privacy.journal import Journal

CONFIDENCE = 1.96
"""Standard errors on either side of a mean: a 95% interval."""


@dataclass(frozen=True)
class Contribution:
    """What changes on a client's own log, and the bundle that it was compared with.

    Parameters
    ----------
    gave : by the client's own rows: the router with them instead of without
    got : by the others' rows: the router without the client's own instead of its own best single model. It has not
        seen the log on which it is compared
    """

    bundle: Path
    queries: int
    gave: Sequence[Mapping[str, Any]]
    got: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {"bundle": str(self.bundle), "queries": self.queries, "gave": list(self.gave), "got": list(self.got)}


def contribution(directory: ClientDirectory, bundle: Path | None = None) -> Contribution:
    """Compare the router of a bundle, by default the one delivered last, with itself without this client's sums."""
    entry = current(directory)
    if bundle is None and entry is None:
        raise BadInput(f"{directory.path}: no bundle was delivered yet; name one with --bundle")
    path = bundle or Path((entry or {})["bundle"])
    saved, config = load(path), directory.config()
    if config.name not in saved.clients:
        raise BadInput(f"{path}: {config.name} is not a client of this router, which has {', '.join(saved.clients)}")
    with own_sums(directory) as federation:
        without = family(saved.router.family).removal()(saved.router, federation)
    rows = evaluations_of(config)[0].over(saved.router.pool)
    gave, got = gain(rows, saved.router, without), gain(rows, without, None)
    if gave is None or got is None:
        raise BadInput(f"{config.name}: its log knows too few models to compare routers on it")
    return Contribution(path, len(gave), _changes(gave), _changes(got))


def _changes(found: Gain) -> list[dict[str, Any]]:
    """Mean change of accuracy and dollars a query at each λ, each with half of its 95% interval."""
    size = len(found)
    return [
        {
            "tradeoff": tradeoff,
            **{name: float(values[:, place].mean()) for name, values in parts.items()},
            **{
                f"{name}_error": float(CONFIDENCE * values[:, place].std() / np.sqrt(size))
                for name, values in parts.items()
            },
        }
        for parts in [{"accuracy": found.accuracy, "cost": found.cost}]
        for place, tradeoff in enumerate(TRADEOFFS)
    ]


class OwnSums(LocalFederation):
    """The client alone, asked by itself for what it sends under secure sums."""

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return {name: self._clients[name].answer(verb, payload, hidden=True) for name in self.clients()}


@contextmanager
def own_sums(directory: ClientDirectory) -> Iterator[LocalFederation]:
    """The client with a copy of its journal: what it once withheld it withholds again, and nothing is recorded."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "journal.sqlite"
        if directory.journal.exists():
            with sqlite3.connect(directory.journal) as real, sqlite3.connect(copy) as other:
                real.backup(other)
            real.close()
            other.close()
        journal = Journal(copy)
        try:
            client: Client = client_of(directory.path, journal)
            yield OwnSums([client])
        finally:
            journal.close()
