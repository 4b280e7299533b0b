"""A client's own sums in a router, which it subtracts at home: what is left is the router of the others."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import family
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.privacy.journal import Journal
from fedrouter.routers.base import Router

MakeClient = Callable[[Path, Journal], Client]
"""Makes the client of a state directory with a journal."""


def without_own(directory: ClientDirectory, make: MakeClient, router: Router) -> Router:
    """The router without this client's rows; raises BadInput if its state is no sum, or not of these rows."""
    with own_sums(directory, make) as federation:
        return family(router.family).removal()(router, federation)


class OwnSums(LocalFederation):
    """The client alone, asked by itself for what it sends under secure sums."""

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return {name: self._clients[name].answer(verb, payload, hidden=True) for name in self.clients()}


@contextmanager
def own_sums(directory: ClientDirectory, make: MakeClient) -> Iterator[LocalFederation]:
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
            yield OwnSums([make(directory.path, journal)])
        finally:
            journal.close()
