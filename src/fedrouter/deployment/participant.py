"""A client as its home describes it: its own evaluations, its own privacy, and its memory of what it has sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrouter.deployment.homes import open_client
from fedrouter.deployment.peers import identity_of
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import DifferentialPrivacy, MinimumGroupSizes, PrivacyPolicy

if TYPE_CHECKING:
    from fedrouter.deployment.settings import ClientSettings
    from fedrouter.encoders import EncoderIdentity
    from fedrouter.evaluations import Evaluations


def client_of(path: Path) -> Client:
    """The client whose home this is, ready to answer."""
    home = open_client(path)
    settings = home.settings()
    evaluations, encoder = evaluations_of(settings)
    return Client(
        settings.name,
        evaluations,
        privacy_of(settings),
        Journal(home.journal),
        encoder=encoder.name,
        normalised=encoder.normalised,
        identity=identity_of(home),
    )


def privacy_of(settings: ClientSettings) -> PrivacyPolicy:
    """What the client insists on, as its settings name it; what they do not name is at its default."""
    given = dict(settings.privacy)
    try:
        for name, kind in (("floors", MinimumGroupSizes), ("noise", DifferentialPrivacy)):
            if given.get(name) is not None:
                parts: dict[str, Any] = {
                    part: tuple(value) if isinstance(value, list) else value for part, value in given[name].items()
                }
                given[name] = kind(**parts)
        return PrivacyPolicy(**given)
    except (TypeError, AttributeError):
        raise BadInput("client.json, privacy: names a setting that is not there") from None


def evaluations_of(settings: ClientSettings) -> tuple[Evaluations, EncoderIdentity]:
    """The client's evaluations, from its log or its gateway's store, and whose embeddings they have."""
    if settings.log is not None:
        from fedrouter.data.read import read

        data = read(settings.log, encoder=settings.encoder)
        return data.evaluations, data.encoder
    if settings.store is not None:
        return _from_store(settings.store, settings.encoder)
    raise BadInput("client.json: names neither a log nor a store; `fedrouter federation client` sets one")


def _from_store(url: str, encoder: str | None) -> tuple[Evaluations, EncoderIdentity]:
    """What the gateway's scored requests say of the models that answered them."""
    from fedrouter.encoders import EncoderIdentity, column_stem
    from fedrouter.learning.traffic import evaluations_of as read
    from fedrouter.pool import ModelPool
    from fedrouter.store.store import Store

    with Store.open(url, create=False) as log:
        where = log.where  # without the password that a URL may have
        records = [record for record in log.rows(scored_only=True) if record.embedding and record.served]
    wanted = encoder or next((record.encoder for record in reversed(records)), None)
    chosen = [record for record in records if wanted and column_stem(record.encoder) == column_stem(wanted)]
    if not chosen or wanted is None:
        raise BadInput(f"{where}: no scored request with an embedding{f' by {encoder}' if encoder else ''}")
    dimension = len(chosen[-1].embedding or b"") // 4
    pool = ModelPool(sorted({str(record.served) for record in chosen}))
    evaluations, _ = read(chosen, pool, EncoderIdentity(wanted, dimension, True))
    return evaluations, EncoderIdentity.of(wanted, evaluations.embeddings)
