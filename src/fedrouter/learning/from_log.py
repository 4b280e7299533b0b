"""Learn a router `bayes` from the scored requests in a gateway's log, beside what the one in service has learned.

Evidence is exact sums, so it does not matter in which batches requests are read. A score that was corrected after it
was learned from is subtracted. A router of another family has no evidence; it is replaced by one of the log alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice

from fedrouter.bundle import Bundle, Provenance
from fedrouter.encoders import EncoderIdentity
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence, total
from fedrouter.learning.new_feedback import new_feedback
from fedrouter.learning.traffic import evaluations_of, pool_in, scored_at
from fedrouter.routers.bayes import BayesRouter
from fedrouter.store.store import Store

BATCH = 20_000
"""Number of requests held in memory at a time."""


@dataclass(frozen=True)
class Learned:
    """A router learned from a log, the number of scored requests that are new in it, and its provenance."""

    router: BayesRouter
    rows: int
    provenance: Provenance


def with_rows(base: BayesRouter | None, rows: Evaluations) -> BayesRouter:
    """The router of what another one has learned and of more rows; of these rows alone if there is no other."""
    return _router(base, _added(None if base is None else base.evidence, rows))


def learn_from_log(log: Store, name: str, encoder: EncoderIdentity, saved: Bundle | None) -> Learned:
    """The router in service with the log's new feedback added; ``name`` is the log's among the router's clients.

    The entry of that name in the bundle says until when the log has been read.
    """
    base = saved.router if saved is not None and isinstance(saved.router, BayesRouter) else None
    before = saved.clients.get(name) if saved is not None and base is not None else None
    if before is not None and "learnt_until" not in before:
        raise BadInput(f"a client of this router's federation has the name of the gateway's log, {name!r}")
    until = None if before is None else float(before["learnt_until"])
    evidence, items = None if base is None else base.evidence, new_feedback(log, until)
    read, corrected, left_out = 0, 0, Counter[str]()
    while batch := list(islice(items, BATCH)):
        pool = pool_in(item.record for item in batch)
        rows, unused = evaluations_of((item.record for item in batch), pool, encoder)
        earlier, _ = evaluations_of((item.learned for item in batch if item.learned), pool, encoder)
        left_out.update(unused)
        until = max(until or 0.0, *(scored_at(item.record) for item in batch))
        evidence = _added(evidence, rows)
        if len(earlier):
            evidence = evidence - Evidence.of(earlier, evidence.features).over(evidence.pool)
        read, corrected = read + len(rows), corrected + len(earlier)
    if evidence is None or not read:
        reasons = ", ".join(f"{count:,} {why}" for why, count in left_out.items())
        raise BadInput(f"nothing to learn: no request was scored since the last time{f' ({reasons})' * bool(reasons)}")
    router = _router(base, evidence)
    change = {"verb": "learn", "family": router.family, "rows": read, "corrected": corrected, "learnt_until": until}
    version = 1 if saved is None else saved.version + 1
    had = 0 if before is None else int(before["rows"])
    entry = {"name": name, "joined": version, **(before or {}), "rows": had + read - corrected, "learnt_until": until}
    if saved is not None and base is not None:
        others = [client for client in saved.clients.values() if client["name"] != name]
        return Learned(router, read, saved.child([*others, entry], change))
    first = Provenance("log", "", 0, 1, [entry], {}, version=version, change=change)
    return Learned(router, read, first if saved is None else replace(first, parent=saved.manifest["digest"]))


def _added(evidence: Evidence | None, rows: Evaluations) -> Evidence:
    """Evidence with that of more rows, of more models if there are any; of these rows alone if there is none."""
    if evidence is None:
        return Evidence.of(rows, map_of_width(rows.dimension))
    return total([evidence, Evidence.of(rows, evidence.features)])


def _router(base: BayesRouter | None, evidence: Evidence) -> BayesRouter:
    return BayesRouter.of(evidence) if base is None else base.with_evidence(evidence)
