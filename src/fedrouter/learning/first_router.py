"""Learn a router where there is none yet: from the scored requests in a gateway's log, or from log files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedrouter.bundle import Provenance
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import single_owner
from fedrouter.engines.simulated import simulated_federation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import family
from fedrouter.learning.from_log import Learned
from fedrouter.learning.traffic import evaluations_of, scored_at
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.store.records import Record


def learn_router(rows: Mapping[str, Evaluations], name: str, seed: int = 0) -> tuple[Router, Settings]:
    """A router of a family from the rows of one owner, or of several as a federation under the default privacy."""
    pool, kind = next(iter(rows.values())).pool, family(name)
    settings = kind.settings()
    if len(rows) == 1:
        (owner, alone), settings = next(iter(rows.items())), settings.single_client()
        return kind.learn(single_owner(owner, alone), pool, settings, seed), settings
    return kind.learn(simulated_federation(rows), pool, settings, seed), settings


def first_from_log(
    records: Iterable[Record], pool: ModelPool, encoder: EncoderIdentity, family: str, name: str, seed: int = 0
) -> Learned:
    """The first router from a gateway's log; ``name`` is the log's among the router's clients."""
    scored = [record for record in records if record.score is not None]
    rows, left_out = evaluations_of(scored, pool, encoder)
    if not len(rows):
        reasons = ", ".join(f"{count:,} {why}" for why, count in left_out.items())
        raise BadInput(
            f"nothing to learn: the log has no scored request that can be used{f' ({reasons})' * bool(reasons)}"
        )
    router, settings = learn_router({name: rows}, family, seed)
    until = max(map(scored_at, scored))
    made = Provenance.of_run("log", "", seed, {name: len(rows)}, settings)
    entry = {"name": name, "rows": len(rows), "learnt_until": until, "waiting": []}
    change = {"verb": "learn", "family": router.family, "seed": seed, "rows": len(rows), "learnt_until": until}
    provenance = Provenance("log", "", seed, made.rounds, [entry], made.hyperparameters, change=change)
    return Learned(router, len(rows), 0, left_out, {}, until, provenance)


def encoder_of(records: Iterable[Record]) -> str:
    """The name of the encoder of most of these records; an error if none has an embedding."""
    names = [record.encoder for record in records if record.embedding is not None and record.score is not None]
    if not names:
        raise BadInput("nothing to learn: the log has no scored request with an embedding")
    return max(sorted(set(names)), key=names.count)
