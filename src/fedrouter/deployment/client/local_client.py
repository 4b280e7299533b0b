"""Build a client from its state directory: its evaluations, its privacy policy, and its journal of sent messages."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedrouter.bundle import load
from fedrouter.deployment.client.refusals import RecordingClient, RefusalLog
from fedrouter.deployment.state.credentials import question_verifier
from fedrouter.deployment.state.directories import ClientDirectory, open_client
from fedrouter.deployment.state.keys import identity_of
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import family
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import MinimumGroupSizes, PrivacyPolicy, TrainingBounds
from fedrouter.federation.rederivation import Rederivation
from fedrouter.routers.base import Router

if TYPE_CHECKING:
    from fedrouter.deployment.state.config import ClientConfig
    from fedrouter.encoders import EncoderIdentity
    from fedrouter.evaluations import Evaluations
    from fedrouter.store.records import Record


def _noise(epsilon: float = Noise.epsilon, delta: float = Noise.delta) -> Noise:
    """The noise of a client, who has no seed: it must not be repeatable."""
    return Noise(epsilon, delta)


POLICY_KEYS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "floors": ("minimum_sizes", MinimumGroupSizes),
    "noise": ("noise", _noise),
    "secure_only": ("secure_only", bool),
    "training": ("training", TrainingBounds),
    "least_cohort": ("least_cohort", int),
    "cohort_gap": ("cohort_gap", int),
    "questions_a_day": ("questions_a_day", int),
    "rederive": ("rederive", bool),
}
"""Keys of "privacy" in client.json, with the field of :class:`PrivacyPolicy` and its type."""


LIBRARIES = ("sklearn.cluster", "cryptography.hazmat.primitives.asymmetric.x25519")
"""What clustering and secure sums take a second to import."""


class ClientCache:
    """The client of a state directory, read once and again when its config or its log has changed.

    Rows from a gateway's store change all the time; they are read once for each run, so that a run's questions are
    all answered from the same rows.
    """

    def __init__(self, path: Path) -> None:
        self._directory = open_client(path)
        self._journal: Journal | None = None
        self._made: tuple[tuple[Any, ...], Client] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal is not None:
            self._journal.close()

    def warm(self) -> None:
        """Load what most answers need, so that the first question does not wait for it; errors are left to that."""
        for name in LIBRARIES:
            with suppress(ImportError):
                import_module(name)
        if self._directory.config().log:
            with suppress(Exception):
                self.client_for(0)

    def client_for(self, run: int) -> Client:
        """The client, ready to answer the questions of a run."""
        log = self._directory.config().log
        version = (_stamp(self._directory.config_file), _stamp(log) if log else run)
        if self._made is None or self._made[0] != version:
            self._made = None
            self._journal = self._journal or Journal(self._directory.journal)
            self._made = version, client_of(self._directory.path, self._journal)
        return self._made[1]


def _stamp(path: str | Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()  # reading it will say why
    return found.st_ino, found.st_size, found.st_mtime_ns


def client_of(path: Path, journal: Journal | None = None) -> Client:
    """The client whose state directory this is, ready to answer."""
    directory = open_client(path)
    config = directory.config()
    evaluations, encoder = evaluations_of(config)
    privacy = privacy_of(config)
    journal = journal or Journal(directory.journal)
    identity, verify = identity_of(directory, journal), question_verifier(directory.authority)
    return RecordingClient(
        RefusalLog(directory.refusals),
        config.name,
        evaluations,
        privacy,
        journal,
        encoder=encoder.name,
        normalised=encoder.normalised,
        identity=identity,
        weights=encoder.weights,
        rederivation=Rederivation(config.name, identity, verify, journal) if privacy.rederive else None,
        in_service=partial(served_router, directory),
        tolerance=config.tolerance,
        without_own=partial(without_own, directory),
    )


def served_router(directory: ClientDirectory) -> Router | None:
    """The router of the bundle that was delivered last; None if there is none, or it cannot be read any more."""
    entry = directory.delivered()
    try:
        return load(entry["bundle"]).router if entry else None
    except (FedrouterError, KeyError):
        return None


def without_own(directory: ClientDirectory, router: Router) -> Router:
    """The router without this client's rows; raises BadInput if its state is no sum, or not of these rows."""
    with own_sums(directory) as federation:
        return family(router.family).removal()(router, federation)


class OwnSums(LocalFederation):
    """The client alone, asked by itself for what it sends under secure sums."""

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return {name: self._clients[name].answer(verb, payload, hidden=1) for name in self.clients()}


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
            yield OwnSums([client_of(directory.path, journal)])
        finally:
            journal.close()


def privacy_of(config: ClientConfig) -> PrivacyPolicy:
    """The client's privacy policy; settings that its config does not name have their defaults."""
    given: dict[str, Any] = {}
    try:
        for key, value in config.privacy.items():
            field, kind = POLICY_KEYS[key]
            if kind not in (bool, int) and value is not None:
                parts = {part: tuple(inner) if isinstance(inner, list) else inner for part, inner in value.items()}
                value = kind(**parts)
            given[field] = value
        return PrivacyPolicy(**given)
    except (KeyError, TypeError, AttributeError):
        raise BadInput("client.json, privacy: names a setting that does not exist") from None


def evaluations_of(config: ClientConfig) -> tuple[Evaluations, EncoderIdentity]:
    """The client's evaluations, from its log or its gateway's store, and the encoder of their embeddings."""
    if config.log is not None:
        from fedrouter.data.read import read

        data = read(config.log, encoder=config.encoder)
        return data.evaluations, data.encoder
    if config.store is not None:
        return _from_store(config.store, config.encoder)
    raise BadInput("client.json: names neither a log nor a store; `fedrouter federation client` sets one")


def _from_store(url: str, encoder: str | None) -> tuple[Evaluations, EncoderIdentity]:
    """Evaluations from the scored requests in a gateway's store."""
    from fedrouter.encoders import EncoderIdentity, column_stem
    from fedrouter.learning.traffic import evaluations_of as read
    from fedrouter.pool import ModelPool
    from fedrouter.store.store import Store

    with Store.open(url, create=False) as log:
        where = log.where  # without the password that a URL may have

        def usable() -> Iterator[Record]:
            return (record for record in log.rows(scored_only=True) if record.embedding and record.served)

        # Two passes with a cursor: the encoder of the latest request says which of them count.
        width: dict[str, int] = {}
        served: dict[str, set[str]] = {}
        latest = None
        for record in usable():
            latest, stem = record.encoder, column_stem(record.encoder)
            width[stem] = len(record.embedding or b"") // 4
            served.setdefault(stem, set()).add(str(record.served))
        wanted = encoder or latest
        if wanted is None or column_stem(wanted) not in served:
            raise BadInput(f"{where}: no scored request with an embedding{f' by {encoder}' if encoder else ''}")
        identity = EncoderIdentity(wanted, width[column_stem(wanted)], True)
        chosen = (record for record in usable() if column_stem(record.encoder) == column_stem(wanted))
        evaluations, _ = read(chosen, ModelPool(sorted(served[column_stem(wanted)])), identity)
    return evaluations, EncoderIdentity.of(wanted, evaluations.embeddings)
