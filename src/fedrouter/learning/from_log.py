"""Learn a new version of a router from the scored requests in a gateway's log.

A router whose state is sums adds each new request as one more row, and subtracts a score that was corrected since. Any
router can instead be personalized: its estimates are weighed against those of a router learned from the whole log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fedrouter.bundle import Bundle, Provenance
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import family
from fedrouter.learning.incremental import Learner
from fedrouter.learning.new_feedback import Watermark, new_feedback
from fedrouter.learning.traffic import evaluations_of, scored_at
from fedrouter.personalization import personalize
from fedrouter.routers.base import Router
from fedrouter.store.store import Store

BATCH = 20_000
"""Number of requests held in memory at a time."""


@dataclass(frozen=True)
class Learned:
    """A router learned from a log, what it was learned from, and its provenance.

    Parameters
    ----------
    rows, corrected : scored requests learned from, and how many of them replaced an earlier score
    left_out : number of requests by the reason for which they could not be used
    waiting : rows of each model that the router has never seen and that has too few rows to begin with
    until : time of the latest score that was read
    """

    router: Router
    rows: int
    corrected: int
    left_out: Mapping[str, int]
    waiting: Mapping[str, int]
    until: float
    provenance: Provenance

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "corrected": self.corrected,
            "left_out": dict(self.left_out),
            "waiting": dict(self.waiting),
            "learnt_until": self.until,
        }


def learn_from_log(saved: Bundle, log: Store, name: str, since: float | None = None, seed: int = 0) -> Learned:
    """Add the log's new feedback to a router whose state is sums.

    Parameters
    ----------
    name : the log's name among the router's clients; its entry in the bundle holds the watermark
    since : skip requests before this time, in seconds since the epoch
    """
    watermark = _watermark(saved, name)
    learner, pool = Learner(saved.router), saved.router.pool
    items, left_out = new_feedback(log, watermark, since), Counter[str]()
    until, corrected, served = watermark.until if watermark else 0.0, 0, []
    while batch := list(islice(items, BATCH)):
        records = [item.record for item in batch]
        earlier, _ = evaluations_of((item.learned for item in batch if item.learned), pool, saved.encoder)
        rows, unused = evaluations_of(records, pool, saved.encoder)
        learner = learner.unfold(earlier).fold(rows)
        until = max(until, *map(scored_at, records))
        corrected += len(earlier)
        left_out.update(unused)
        served += [(record.id, record.served) for record in records]
    waiting = Counter(pool.names[index] for index in learner.waiting.model) if learner.waiting is not None else {}
    learned = learner.rows + corrected
    if not learned:
        reasons = ", ".join(f"{count:,} {why}" for why, count in left_out.items())
        raise BadInput(f"nothing to learn: no request was scored since the last time{f' ({reasons})' * bool(reasons)}")
    before = saved.clients.get(name, {})
    total = before.get("rows", 0) + learned - corrected
    entry = {"name": name, "rows": total, "joined": saved.version + 1, **before} | {
        "rows": total,
        "learnt_until": until,
        "waiting": sorted(identity for identity, model in served if model in waiting),
    }
    clients = [*(client for client in saved.clients.values() if client["name"] != name), entry]
    change = _change(learner.router, seed, learned, corrected, until)
    return Learned(
        learner.router, learned, corrected, dict(left_out), dict(waiting), until, saved.child(clients, change)
    )


def personalize_from_log(saved: Bundle, log: Store, since: float | None = None, seed: int = 0) -> Learned:
    """Make a personal router from the whole log; a personal router is made again from its federated half."""
    federated = saved.router.federated_router()
    name = federated.family if federated is saved.router else saved.router.components()[-1].family
    records = list(log.rows(since, scored_only=True))
    rows, left_out = evaluations_of(records, federated.pool, saved.encoder)
    settings = family(name).settings.from_json(saved.settings_for(name))
    personal = personalize(federated, rows, name, settings, seed)
    until = max(map(scored_at, records))
    provenance = saved.child(list(saved.clients.values()), _change(personal, seed, len(rows), 0, until))
    return Learned(personal, len(rows), 0, left_out, {}, until, provenance)


def _watermark(saved: Bundle, name: str) -> Watermark | None:
    """How far the router has read this log; None if it has not."""
    entry = saved.clients.get(name)
    if entry is None:
        return None
    if "learnt_until" not in entry:
        raise BadInput(f"--name: {name} is a client that took part in the federation; choose another name for the log")
    return Watermark(float(entry["learnt_until"]), frozenset(entry["waiting"]))


def _change(router: Router, seed: int, rows: int, corrected: int, until: float) -> dict[str, Any]:
    """What the new bundle's provenance says about this step."""
    return {
        "verb": "learn",
        "family": router.family,
        "seed": seed,
        "rows": rows,
        "corrected": corrected,
        "learnt_until": until,
    }
