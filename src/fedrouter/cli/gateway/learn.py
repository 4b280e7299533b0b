"""`fedrouter learn`: a new version of a router from what the gateway's log has said since the last one."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.gateway.stores import ConfigPath, Since, StoreUrl, moment, open_store
from fedrouter.cli.output import Json, Voice
from fedrouter.cli.router.grow import Out, Seed, Test
from fedrouter.cli.router.saved import areas_before_and_after
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.learning.news import Mark
    from fedrouter.routers.base import Router
    from fedrouter.store.store import Store

AT_ONCE = 20_000
"""Requests held in memory at a time."""


def learn(
    bundle: Annotated[Path, typer.Option("--bundle", help="Folder of the router to start from.")],
    out: Out,
    store: StoreUrl = None,
    config: ConfigPath = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="A router of one's own: the bundle's weighed against the log's.")
    ] = False,
    since: Since = None,
    name: Annotated[str, typer.Option("--name", help="The log's name among the router's clients.")] = "gateway",
    seed: Seed = 0,
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Learn from the scored requests of a gateway's log; only those that the router has not learned from yet.

    A router whose state is sums takes every one in as one more row, exactly. A score that was corrected after it was
    learned from is taken out again first.
    """
    from fedrouter.bundle import load, refuse_existing, save

    voice = Voice(as_json)
    refuse_existing(out)
    saved = load(bundle)
    start = moment(since, "--since")
    with open_store(store, config) as log:
        if personal or saved.router.family == "personal":
            router, told = _personal(saved, log, start, seed)
            clients = list(saved.clients.values())
        else:
            router, told = _folded(saved, log, start, _mark(saved, name))
            rows = saved.clients.get(name, {}).get("rows", 0) + told["rows"] - told["corrected"]
            entry = {"name": name, "rows": rows, "joined": saved.version + 1, **saved.clients.get(name, {})}
            entry |= {"rows": rows, "learnt_until": told["learnt_until"], "waiting": told.pop("waiting_ids")}
            clients = [*(client for client in saved.clients.values() if client["name"] != name), entry]
        where = log.where
    areas = areas_before_and_after(voice, saved, router, test)
    change = {"verb": "learn", "family": router.family, "seed": seed} | {
        part: told[part] for part in ("rows", "corrected", "learnt_until")
    }
    provenance = saved.child(clients, change)
    save(out, router, saved.encoder, provenance)
    corrected = f", {told['corrected']:,} of them corrected" if told["corrected"] else ""
    voice.say(f"Learned from {told['rows']:,} scored requests{corrected}.")
    for why, count in told["left_out"].items():
        voice.say(f"  left out: {count:,} ({why})")
    for model, count in told["waiting"].items():
        voice.say(f"  {model}: {count} scored requests, too few to begin with; they wait for the next time")
    voice.say(f"Version {provenance.version} in {out}; its parent is {bundle}.")
    voice.next(f"fedrouter evaluate {out} --log {store or where}   (on requests that come from now on)")
    voice.result(
        {
            "bundle": str(out),
            "version": provenance.version,
            "parent": provenance.parent,
            "change": change,
            **told,
            "models": list(router.pool.names),
            **({"areas": areas} if areas else {}),
        }
    )


def _mark(saved: Bundle, name: str) -> Mark | None:
    """How far the router has read this log."""
    from fedrouter.learning.news import Mark

    entry = saved.clients.get(name)
    if entry is None:
        return None
    if "learnt_until" not in entry:
        raise BadInput(f"--name: {name} is a client that took part in the federation; give the log a name of its own")
    return Mark(float(entry["learnt_until"]), frozenset(entry["waiting"]))


def _folded(saved: Bundle, log: Store, since: float | None, mark: Mark | None) -> tuple[Router, dict[str, Any]]:
    """The router with the log's news folded in, and what there was to tell about it."""
    from fedrouter.learning.incremental import Learner
    from fedrouter.learning.news import news
    from fedrouter.learning.traffic import evaluations_of, scored_at

    learner, pool = Learner(saved.router), saved.router.pool
    items, left_out = news(log, mark, since), Counter[str]()
    until, corrected, served = mark.until if mark else 0.0, 0, []
    while batch := list(islice(items, AT_ONCE)):
        records = [item.record for item in batch]
        before, _ = evaluations_of((item.before for item in batch if item.before), pool, saved.encoder)
        rows, why = evaluations_of(records, pool, saved.encoder)
        learner = learner.unfold(before).fold(rows)
        until = max(until, *map(scored_at, records))
        corrected += len(before)
        left_out.update(why)
        served += [(record.id, record.served) for record in records]
    waiting = Counter(pool.names[place] for place in learner.waiting.model) if learner.waiting is not None else {}
    learned = learner.rows + corrected
    if not learned:
        reasons = ", ".join(f"{count:,} {why}" for why, count in left_out.items())
        raise BadInput(f"nothing to learn: no request was scored since the last time{f' ({reasons})' * bool(reasons)}")
    return learner.router, {
        "rows": learned,
        "corrected": corrected,
        "left_out": dict(left_out),
        "waiting": dict(waiting),
        "learnt_until": until,
        "waiting_ids": sorted(identity for identity, model in served if model in waiting),
    }


def _personal(saved: Bundle, log: Store, since: float | None, seed: int) -> tuple[Router, dict[str, Any]]:
    """A personal router of the whole log; a personal one is made anew, from the federated half it has."""
    from fedrouter.federation.families.registry import settings_of
    from fedrouter.learning.traffic import evaluations_of, scored_at
    from fedrouter.personalization import personalize
    from fedrouter.routers.personal import PersonalRouter

    router = saved.router
    federated, family = (
        (router.federated, router.local.family) if isinstance(router, PersonalRouter) else (router, router.family)
    )
    records = list(log.rows(since, scored_only=True))
    rows, left_out = evaluations_of(records, federated.pool, saved.encoder)
    settings = settings_of(family, saved.manifest["hyperparameters"] if family == federated.family else {})
    return personalize(federated, rows, family, settings, seed), {
        "rows": len(rows),
        "corrected": 0,
        "left_out": dict(left_out),
        "waiting": {},
        "learnt_until": max(map(scored_at, records)),
    }
