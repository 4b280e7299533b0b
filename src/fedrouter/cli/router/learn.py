"""`fedrouter learn`: a router from logs, alone or together, and a new one from a bundle and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.protocol_options import DeviceOption, SetOption
from fedrouter.cli.router.saved import Log, is_store, named, read_logs
from fedrouter.cli.router.verdict import (
    QUALITY,
    Quality,
    checked_quality,
    document_of,
    draw,
    judged,
    measured_tradeoffs,
    say_models,
    say_verdict,
)
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle, Provenance
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.families.family import Settings
    from fedrouter.routers.base import Router

DEFAULT = "bayes"


def learn(
    out: Annotated[Path, typer.Option("--out", help="Folder of the new bundle; it must not exist.")],
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOG…",
            help="Files with evaluations, or a gateway's store (sqlite:///PATH); NAME=FILE names its owner.",
        ),
    ] = None,
    grown: Annotated[
        Path | None, typer.Option("--with", metavar="BUNDLE", help="Add the logs to this router; it stays as it is.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="LOG", help="Subtract a log from --with BUNDLE, exactly; repeatable."),
    ] = None,
    router: Annotated[
        str | None, typer.Option("--router", help="Family: bayes (default), kmeans or mlp.", show_default=False)
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="K-Means and MLP as printed in the paper.")] = False,
    changes: SetOption = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Whose embeddings; default: those in the file, or static.")
    ] = None,
    quality: Quality = QUALITY,
    device: DeviceOption = "cpu",
    seed: Annotated[int, typer.Option("--seed", min=0, help="One seed reproduces a run exactly.")] = 0,
    as_json: Json = False,
) -> None:
    """Learn a router from logs and judge it on them, across folds.

    Several logs learn together in this process. With --with BUNDLE a router gets more rows, models and owners; one
    that a federation learned becomes personal.
    """
    from fedrouter.bundle import load, refuse_existing
    from fedrouter.encoders.device import use_device

    voice = Voice(as_json)
    checked_quality(quality)
    use_device(device)
    refuse_existing(out)
    saved = None if grown is None else load(grown)
    if saved is None and without:
        raise BadInput("--without: expected --with BUNDLE, from which the log is subtracted")
    if saved is not None and (router or paper or changes or encoder):
        raise BadInput("--with: the bundle says the router, its settings and encoder; leave the other options out")
    if not logs and not without:
        raise BadInput("learn: expected a LOG; `fedrouter learn LOG --out DIR`")
    sources = named(logs or [])
    if saved is not None and any(map(is_store, sources.values())):
        _from_store(voice, saved, sources, out)
        return
    settings = _settings(saved, router or DEFAULT, paper, changes or [])
    added = read_logs(voice, sources, saved, encoder, new=True)
    left = read_logs(voice, named(without or [], "--without"), saved) if without else []
    _say_logs(voice, added, left)
    warnings = _warnings(voice, added)
    found, provenance = _learned(saved, added, left, router or DEFAULT, settings, seed)
    _conclude(voice, found, provenance, settings, added, warnings, out, quality, seed, saved)


def _settings(saved: Bundle | None, router: str, paper: bool, changes: Sequence[str]) -> Settings:
    from fedrouter.experiments.choice import read_changes, refuse_unused
    from fedrouter.federation.families.registry import family

    if router == "auto":
        raise BadInput("--router auto: replaced by bayes, the default")
    name = router if saved is None else saved.router.federated_router().family
    kind = family(name)
    if saved is not None:
        return kind.settings.from_json(saved.settings_for(name))
    if paper and kind.paper is None:
        raise BadInput(f"--paper: {name} is not in the paper, which has kmeans and mlp")
    start = kind.paper if paper and kind.paper is not None else kind.settings()
    given = read_changes(changes)
    found: Settings = start.changed(**given.get(name, {}))
    refuse_unused(given, {name: found})
    return found


def _say_logs(voice: Voice, added: Sequence[Log], left: Sequence[Log]) -> None:
    from fedrouter.data.overview import by_model

    for log in left:
        voice.say(f"without {log.owner}: {len(log.rows):,} evaluations of {log.source}")
    if added:
        rows = sum(len(log.rows) for log in added)
        queries = sum(log.rows.queries for log in added)
        owners = f" of {', '.join(log.owner for log in added)}" if len(added) > 1 else ""
        voice.say(f"{rows:,} evaluations of {queries:,} queries{owners}; encoder {added[0].encoder.name}\n")
        say_models(voice, by_model([log.rows for log in added]))
        voice.say("")


def _warnings(voice: Voice, added: Sequence[Log]) -> list[str]:
    from fedrouter.data.checks import warnings_of

    found = [
        f"{log.owner}: {warning}" if len(added) > 1 else warning for log in added for warning in warnings_of(log.rows)
    ]
    for warning in found:
        voice.warn(warning)
    return found


def _learned(
    saved: Bundle | None, added: Sequence[Log], left: Sequence[Log], name: str, settings: Settings, seed: int
) -> tuple[Router, Provenance]:
    """The router, and where it comes from."""
    from fedrouter.bundle import Provenance
    from fedrouter.growth import grow, learn, reduced

    rows = {log.owner: log.rows for log in added}
    entries = {log.owner: _entry(log) for log in added}
    with bars() as shown:

        def follow(progress: Any) -> None:
            shown.move(progress.stage, progress.step, progress.steps)

        if saved is None:
            router = learn(rows, name, settings, seed, follow)
            used = settings.single_client() if len(rows) == 1 else settings
            digest = added[0].digest if len(added) == 1 else ""
            made = Provenance.of_run(", ".join(Path(log.source).name for log in added), digest, seed, {}, used)
            change = {"verb": "learn", "family": name, "seed": seed}
            return router, _replaced(made, list(entries.values()), change)
        members = dict(saved.clients)
        router = saved.router
        for log in left:
            members = _without(members, log, str(saved.path))
            router = reduced(router, {log.owner: log.rows})
        for log in added:
            if any(log.digest in _digests(entry) for entry in members.values()):
                raise BadInput(f"{log.source}: already part of {saved.path}; its evaluations would count twice")
        if added:
            router = grow(router, rows, settings, seed, follow)
    for owner, entry in entries.items():
        old = members.get(owner)
        members[owner] = {**entry, "joined": saved.version + 1} if old is None else _joined(old, entry)
    names = {"logs": sorted(rows), "without": [log.owner for log in left]}
    return router, saved.child(list(members.values()), {"verb": "learn", **names, "seed": seed})


def _entry(log: Log) -> dict[str, Any]:
    """What a bundle keeps of a log: its owner, how many evaluations, and the digest of the file."""
    files = {log.digest: len(log.rows)} if log.digest else {}
    return {"name": log.owner, "rows": len(log.rows), "files": files} | {
        name: value for name, value in log.entry.items() if name != "digest"
    }


def _digests(entry: Mapping[str, Any]) -> Mapping[str, int]:
    return dict(entry.get("files", {}))


def _joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {**old, "rows": old["rows"] + new["rows"], "files": {**_digests(old), **new["files"]}}


def _without(members: Mapping[str, Mapping[str, Any]], log: Log, bundle: str) -> dict[str, Any]:
    """The members without a log; refused if the bundle was not learned from this very file."""
    for owner, entry in members.items():
        files = dict(_digests(entry))
        if log.digest in files:
            rows = entry["rows"] - files.pop(log.digest)
            rest = {owner: {**entry, "rows": rows, "files": files}} if files else {}
            return {name: rest.get(name, other) for name, other in members.items() if name != owner or rest}
    raise BadInput(f"--without {log.source}: {bundle} was not learned from this file, so it cannot be subtracted")


def _replaced(made: Provenance, members: Sequence[Mapping[str, Any]], change: Mapping[str, Any]) -> Provenance:
    from dataclasses import replace

    return replace(made, clients=members, change=change)


def _conclude(
    voice: Voice,
    router: Router,
    provenance: Provenance,
    settings: Settings,
    added: Sequence[Log],
    warnings: Sequence[str],
    out: Path,
    quality: float,
    seed: int,
    saved: Bundle | None,
) -> None:
    """Judge the router on the logs, save it, and say what is next."""
    from dataclasses import asdict, replace

    from fedrouter.bundle import save
    from fedrouter.data.overview import by_model
    from fedrouter.evaluations import Evaluations
    from fedrouter.growth import learner, pool_of

    document: dict[str, Any] = {"verdict": "none: no log was added", "judgement": None, "figure": None}
    if added:
        pool = pool_of([log.rows for log in added])
        rows: Evaluations = Evaluations.concatenate([log.rows.over(pool) for log in added])
        parent = None if saved is None else saved.router
        verdict, outcomes = judged(rows, learner(router, settings, seed, rows, parent), quality)
        tradeoffs = measured_tradeoffs(outcomes)
        provenance = replace(provenance, change={**provenance.change, "tradeoffs": tradeoffs})
        say_verdict(voice, verdict)
        document = document_of(verdict) | {"figure": None}
    encoder = added[0].encoder if saved is None else saved.encoder
    save(out, router, encoder, provenance)
    if added and (figure := draw(voice, verdict, out.with_name(f"{out.name}.png"))):
        document["figure"] = str(figure)
    of = f"; its parent is {saved.path}" if saved is not None else ""
    voice.say(f"Bundle: {out}, version {provenance.version}{of}")
    steps = next_steps(encoder.name, out)
    voice.next(*steps)
    voice.result(
        {
            "bundle": str(out),
            "version": provenance.version,
            "family": router.family,
            "encoder": encoder.name,
            "models": list(router.pool.names),
            "log": [asdict(each) for each in by_model([log.rows for log in added])],
            "rows": {entry["name"]: entry["rows"] for entry in provenance.clients},
            "parent": provenance.parent,
            "change": dict(provenance.change),
            "warnings": list(warnings),
            **document,
            "next": steps,
        }
    )


def next_steps(encoder: str, out: Path) -> list[str]:
    """What to type next; a router reads text if its encoder is at hand."""
    from fedrouter.encoders import OFFLINE, STATIC

    if encoder in (STATIC, OFFLINE):
        return [f'fedrouter route {quoted(out)} "Write a SQL query that counts orders by month." --explain']
    return [f"fedrouter show {quoted(out)}"]


def _from_store(voice: Voice, saved: Bundle, sources: Mapping[str, str], out: Path) -> None:
    """Add what was scored since the router last read a gateway's store; corrected scores replace earlier ones."""
    from fedrouter.bundle import save
    from fedrouter.learning.from_log import learn_from_log
    from fedrouter.store.store import Store

    if len(sources) > 1:
        raise BadInput("a gateway's store is learned from alone; leave out the other logs")
    ((owner, source),) = sources.items()
    with Store.open(source, create=False) as store:
        learned = learn_from_log(store, owner, saved.encoder, saved)
    save(out, learned.router, saved.encoder, learned.provenance)
    corrected = int(learned.provenance.change["corrected"])
    voice.say(f"Learned from {learned.rows:,} scored requests, {corrected:,} of them corrected.")
    voice.say(f"Bundle: {out}, version {learned.provenance.version}; its parent is {saved.path}")
    voice.next(f"fedrouter bundle use {quoted(out)}", f"fedrouter evaluate {quoted(out)} {quoted(source)}")
    voice.result(
        {
            "bundle": str(out),
            "version": learned.provenance.version,
            "parent": learned.provenance.parent,
            "change": learned.provenance.change,
            "rows": learned.rows,
            "corrected": corrected,
            "models": list(learned.router.pool.names),
        }
    )
