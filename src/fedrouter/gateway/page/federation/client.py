"""What a client's state directory says: its audit message by message, its budget, and what the others bring."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import numpy as np

from fedrouter.bundle import load
from fedrouter.deployment.client.local_client import evaluations_of, privacy_of
from fedrouter.deployment.state.delivered import current
from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.deployment.state.refusals import RefusalLog
from fedrouter.drift.regions import REGIONS, region_names
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.evaluations import Embeddings
from fedrouter.exact import ExactSums
from fedrouter.federation.clustering import cluster
from fedrouter.federation.message import Packed
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.routers.base import Router
from fedrouter.routers.kmeans import nearest_centre

LISTED, REFUSALS = 500, 20
"""Latest messages and questions, and refusals, that are listed."""
SHOWN = 60
"""Numbers of an array that are shown."""


def client_view(directory: ClientDirectory) -> dict[str, Any]:
    """Every message and question of the journal, after its chain was verified; refusals, budget and coverage."""
    config = directory.config()
    found: dict[str, Any] = {
        "kind": "client",
        "name": config.name,
        "coordinator": config.coordinator,
        "bundle": (current(directory) or {}).get("run"),
        "refusals": RefusalLog(directory.refusals).last(REFUSALS)[::-1],
        "coverage": _coverage(directory),
        **_budget(directory),
    }
    try:
        journal = Journal(directory.journal, reading=True)
    except BadInput as error:
        return found | {"messages": [], "questions": [], "verified": None, "problem": str(error)}
    try:
        verified, problem = journal.verify(), None
        sent, asked = list(journal.entries()), list(journal.questions())
    except BadInput as error:
        verified, problem, sent, asked = None, str(error), [], []
    finally:
        journal.close()
    return found | {
        "verified": verified,
        "problem": problem,
        "bytes": sum(each.bytes for each in sent),
        "messages": [
            {
                "number": each.number,
                "time": each.time,
                "verb": each.verb,
                "leaves": VERBS[each.verb].leaves if each.verb in VERBS else "",
                "bytes": each.bytes,
                "epsilon": json.loads(each.spent).get("epsilon") if each.spent else None,
            }
            for each in sent[: -LISTED - 1 : -1]
        ],
        "questions": [
            {"number": each.number, "time": each.time, "verb": each.verb, "bytes": each.bytes, "outcome": each.outcome}
            for each in asked[: -LISTED - 1 : -1]
        ],
    }


def journal_entry(directory: ClientDirectory, kind: str, number: int) -> dict[str, Any]:
    """One ``message`` or ``question``: scalars, and arrays with their first numbers; BadInput if there is none."""
    journal = Journal(directory.journal, reading=True)
    try:
        verb, packed = journal.message(number) if kind == "message" else journal.question(number)
    finally:
        journal.close()
    return {"number": number, "verb": verb, "kind": kind, **_content(packed, _exact(verb, kind))}


def _exact(verb: str, kind: str) -> set[str]:
    """Names of the arrays that hold exact sums, which are shown as the numbers that they stand for."""
    if verb not in VERBS:
        return set()
    known = VERBS[verb]
    hints = get_type_hints(known.reply if kind == "message" else known.request)
    return {name for name, meant in hints.items() if meant is ExactSums}


def _content(packed: Packed, exact: set[str]) -> dict[str, Any]:
    arrays = {name: ExactSums(array).totals() if name in exact else array for name, array in packed[0].items()}
    scalars = packed[1]
    return {
        "scalars": json.loads(scalars or "{}"),
        "arrays": [
            {
                "name": name,
                "shape": list(array.shape),
                "type": "exact sums" if name in exact else str(array.dtype),
                "numbers": np.asarray(array).ravel()[:SHOWN].tolist(),
                "more": max(0, int(array.size) - SHOWN),
            }
            for name, array in arrays.items()
        ],
    }


def _budget(directory: ClientDirectory) -> dict[str, Any]:
    """The privacy budget and what the journal says is spent of it; None without differential privacy."""
    noise = privacy_of(directory.config()).differential_privacy
    if noise is None:
        return {"budget": None}
    spent = 0.0
    try:
        journal = Journal(directory.journal, reading=True)
    except BadInput:
        return {"budget": {"epsilon": noise.epsilon, "spent": spent}}
    try:
        for each in journal.entries():
            spent = max(spent, float(json.loads(each.spent).get("epsilon", 0.0)) if each.spent else 0.0)
    finally:
        journal.close()
    return {"budget": {"epsilon": noise.epsilon, "delta": noise.delta, "spent": spent}}


def _regions(router: Router) -> Embeddings:
    """At most :data:`REGIONS` regions ``(K, d)`` of a router, found among its own; one of everything if it has none."""
    own = router.regions()
    if own is None:
        return np.zeros((1, router.dimension), np.float32)
    cells = router.cells()
    weights = cells.count.sum(axis=1) if cells is not None and len(cells.count) == len(own) else None
    return cluster(own, REGIONS, restarts=4, iterations=100, seed=0, weights=weights)


def _coverage(directory: ClientDirectory) -> dict[str, Any] | None:
    """Own rows by region and model beside those of all members, by the regions of the router that was delivered."""
    try:
        bundle = current(directory)
        saved = load(bundle["bundle"]) if bundle else None
        cells = saved.router.cells() if saved else None
        if saved is None or cells is None:
            return None
        rows, _ = evaluations_of(directory.config())
    except FedrouterError:
        return None
    pool, centres = saved.router.pool, _regions(saved.router)
    own, everyone = (np.zeros((len(centres), len(pool)), np.int64) for _ in range(2))
    np.add.at(everyone, nearest_centre(cells.centres, centres), cells.count)
    rows = rows.over(pool)
    np.add.at(own, (nearest_centre(rows.embeddings, centres)[rows.query], rows.model), 1)
    names = region_names(centres, np.asarray(rows.embeddings), rows.task, rows.text)
    return {
        "regions": list(names),
        "models": list(pool.names),
        "own": own.tolist(),
        "others": np.maximum(everyone - own, 0).tolist(),
    }
