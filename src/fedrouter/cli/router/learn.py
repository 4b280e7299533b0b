"""`fedrouter learn`: a router from logs, alone or together, and a new one from a bundle and logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.protocol_options import SetOption
from fedrouter.cli.router.saved import Log, is_store, named, read_logs
from fedrouter.cli.router.verdict import (
    Quality,
    document_of,
    draw,
    judged,
    measured_tradeoffs,
    quality_of,
    say_models,
    say_verdict,
)
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle, Provenance
    from fedrouter.data.overview import ModelRows
    from fedrouter.encoders import EncoderIdentity
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.families.bayes import BayesSettings
    from fedrouter.federation.families.family import Settings
    from fedrouter.routers.base import Router

DEFAULT = "bayes"
SEED = 0
"""The seed of what is drawn at random: the same logs give the same router."""


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
    quality: Quality = None,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Read the files on a Dask cluster's workers.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a router from logs and judge it on them, across folds.

    Several logs learn together in this process. With --with BUNDLE a router gets more rows, models and owners; one
    that a federation learned becomes personal.
    """
    from fedrouter.bundle import load, refuse_existing
    from fedrouter.federation.families.bayes import BayesSettings

    voice = Voice(as_json)
    refuse_existing(out)
    saved = None if grown is None else load(grown)
    quality = quality_of(quality, saved)
    if saved is None and without:
        raise BadInput("--without: expected --with BUNDLE, from which the log is subtracted")
    if saved is not None and (router or paper or changes or encoder):
        raise BadInput("--with: the bundle says the router, its settings and encoder; leave the other options out")
    if not logs and not without:
        raise BadInput("learn: expected a LOG; `fedrouter learn LOG --out DIR`")
    sources = named(logs or [])
    settings = _settings(saved, router or DEFAULT, paper, changes or [])
    left_out = named(without or [], "--without")
    if any(map(is_store, left_out.values())):
        raise BadInput("--without: expected a file; a gateway's store is read further, and corrected scores replaced")
    if any(map(is_store, sources.values())):
        if router not in (None, DEFAULT) or paper or changes or encoder or dask or left_out:
            raise BadInput(
                "a gateway's store is learned from by bayes with its own embeddings; leave the other options out, or "
                "learn from a file: fedrouter log --out FILE"
            )
        _from_store(voice, saved, sources, out, quality)
        return
    if dask and (saved is not None or (router or DEFAULT) != DEFAULT):
        raise BadInput("--dask: only a new router bayes is learned so; leave out --with and --router")
    if saved is None and isinstance(settings, BayesSettings) and (dask or _are_large(sources.values())):
        found, provenance, read = _from_large(voice, sources, settings, encoder, dask)
    else:
        added = read_logs(voice, sources, saved, encoder, new=True)
        left = read_logs(voice, left_out, saved) if left_out else []
        read = _read(added)
        _say_logs(voice, read, added, left)
        found, provenance = _learned(saved, added, left, router or DEFAULT, settings)
    _conclude(voice, found, provenance, settings, read, out, quality, saved)


def _settings(saved: Bundle | None, router: str, paper: bool, changes: Sequence[str]) -> Settings:
    from fedrouter.federation.families.choice import read_changes, refuse_unused
    from fedrouter.federation.families.registry import family, paper_settings

    if router == "auto":
        raise BadInput("--router auto: replaced by bayes, the default")
    name = router if saved is None else saved.router.federated_router().family
    kind = family(name)
    if saved is not None:
        return kind.settings.from_json(saved.settings_for(name))
    start = paper_settings(name) if paper else kind.settings()
    given = read_changes(changes)
    found: Settings = start.changed(**given.get(name, {}))
    refuse_unused(given, {name: found})
    return found


@dataclass(frozen=True, eq=False)
class Read:
    """What all logs together say: a table by model, warnings, and the rows to judge a router on, if there are any."""

    models: tuple[ModelRows, ...] = ()
    warnings: tuple[str, ...] = ()
    rows: Evaluations | None = None
    encoder: EncoderIdentity | None = None


def _read(added: Sequence[Log]) -> Read:
    from fedrouter.data.checks import warnings_of
    from fedrouter.data.overview import by_model
    from fedrouter.evaluations import Evaluations
    from fedrouter.growth import pool_of

    if not added:
        return Read()
    warnings = [
        f"{log.owner}: {warning}" if len(added) > 1 else warning
        for log in added
        for warning in warnings_of(log.rows, 0 if log.unscored is None else len(log.unscored), log.repeated)
    ]
    logs = [log.rows for log in added]
    pool = pool_of(logs)
    rows = Evaluations.concatenate([own.over(pool) for own in logs])
    return Read(by_model(logs), tuple(warnings), rows, added[0].encoder)


def _say_logs(voice: Voice, read: Read, added: Sequence[Log], left: Sequence[Log]) -> None:
    for log in left:
        voice.say(f"without {log.owner}: {len(log.rows):,} evaluations of {log.source}")
    if added:
        rows = sum(len(log.rows) for log in added)
        queries = sum(log.rows.queries for log in added)
        owners = f" of {', '.join(log.owner for log in added)}" if len(added) > 1 else ""
        _say(voice, read, f"{rows:,} evaluations of {queries:,} queries{owners}; encoder {added[0].encoder.name}")


def _say(voice: Voice, read: Read, line: str) -> None:
    voice.say(f"{line}\n")
    say_models(voice, read.models)
    voice.say("")
    for warning in read.warnings:
        voice.warn(warning)


def _are_large(files: Iterable[str]) -> bool:
    """Whether some files are better not held in memory."""
    from fedrouter.data import batches
    from fedrouter.data.source import parts_of

    parts = [part for file in files for part in parts_of(Path(file))]
    return sum(part.stat().st_size for part in parts if part.exists()) >= batches.LARGE


def _from_large(
    voice: Voice, sources: Mapping[str, str], settings: BayesSettings, encoder: str | None, dask: str | None
) -> tuple[Router, Provenance, Read]:
    """A router of logs that are read in batches, here or on a Dask cluster; judged on a sample of their queries."""
    from fedrouter.bundle import Provenance
    from fedrouter.data.batches import evidence_of
    from fedrouter.data.overview import ModelRows
    from fedrouter.data.source import parts_of
    from fedrouter.routers.bayes import BayesRouter

    with bars() as shown:
        evidence, log = evidence_of(
            list(sources.values()),
            encoder,
            settings=settings,
            watch=lambda done, total: shown.move("reading", done, total),
            dask=dask,
        )
    facts = log.facts
    counts = zip(facts.pool.names, facts.rows.tolist(), facts.means.tolist(), strict=True)
    models = tuple(ModelRows(name, rows, *means) for name, rows, means in counts if rows)
    read = Read(models, tuple(facts.warnings()), log.sample, log.encoder)
    total = int(facts.rows.sum())
    _say(voice, read, f"{total:,} evaluations, {log.sample.queries:,} queries to judge on; encoder {log.encoder.name}")
    files = iter(zip(log.digests, log.rows, strict=True))
    entries = []
    for owner, source in sources.items():
        own = dict(islice(files, len(parts_of(Path(source)))))
        entries.append({"name": owner, "rows": sum(own.values()), "files": own})
    digest = log.digests[0] if len(log.digests) == 1 else ""
    made = Provenance.of_run(", ".join(Path(source).name for source in sources.values()), digest, SEED, {}, settings)
    change = {"verb": "learn", "family": DEFAULT, "seed": SEED}
    return BayesRouter.of(evidence), replace(made, clients=entries, change=change), read


def _learned(
    saved: Bundle | None, added: Sequence[Log], left: Sequence[Log], name: str, settings: Settings
) -> tuple[Router, Provenance]:
    """The router, and where it comes from."""
    from fedrouter.bundle import Provenance
    from fedrouter.growth import grow, learn, reduced, with_unscored

    rows = {log.owner: log.rows for log in added}
    entries = {log.owner: _entry(log) for log in added}
    with bars() as shown:

        def follow(progress: Any) -> None:
            shown.move(progress.stage, progress.step, progress.steps)

        if saved is None:
            router = with_unscored(learn(rows, name, settings, SEED, follow), (log.unscored for log in added))
            used = settings.single_client() if len(rows) == 1 else settings
            digest = added[0].digest if len(added) == 1 else ""
            made = Provenance.of_run(", ".join(Path(log.source).name for log in added), digest, SEED, {}, used)
            change = {"verb": "learn", "family": name, "seed": SEED}
            return router, replace(made, clients=list(entries.values()), change=change)
        members = dict(saved.clients)
        router = saved.router
        for log in left:
            members = _without(members, log, str(saved.path))
            router = with_unscored(reduced(router, {log.owner: log.rows}), [log.unscored], -1)
        for log in added:
            if any(log.digest in _digests(entry) for entry in members.values()):
                raise BadInput(f"{log.source}: already part of {saved.path}; its evaluations would count twice")
        if added:
            router = with_unscored(grow(router, rows, settings, SEED, follow), (log.unscored for log in added))
    for owner, entry in entries.items():
        old = members.get(owner)
        members[owner] = {**entry, "joined": saved.version + 1} if old is None else _joined(old, entry)
    names = {"logs": sorted(rows), "without": [log.owner for log in left]}
    return router, saved.child(list(members.values()), {"verb": "learn", **names, "seed": SEED})


def _entry(log: Log) -> dict[str, Any]:
    """What a bundle keeps of a log: its owner, how many evaluations, and the digest of the file."""
    files = {log.digest: len(log.rows)} if log.digest else {}
    return {"name": log.owner, "rows": len(log.rows), "files": files}


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


def _conclude(
    voice: Voice,
    router: Router,
    provenance: Provenance,
    settings: Settings,
    read: Read,
    out: Path,
    quality: float,
    saved: Bundle | None,
) -> None:
    """Judge the router on the logs, save it, and say what is next."""
    from fedrouter.bundle import save
    from fedrouter.growth import learner

    change = {**provenance.change, "quality": quality}
    document: dict[str, Any] = {"verdict": "none: no log was added", "judgement": None, "figure": None}
    if read.rows is not None:
        parent = None if saved is None else saved.router
        verdict, outcomes = judged(read.rows, learner(router, settings, SEED, read.rows, parent), quality)
        change["tradeoffs"] = measured_tradeoffs(outcomes, quality)
        say_verdict(voice, verdict)
        document = document_of(verdict) | {"figure": None}
    encoder = read.encoder if saved is None else saved.encoder
    assert encoder is not None
    provenance = replace(provenance, change=change)
    save(out, router, encoder, provenance)
    if read.rows is not None and (figure := draw(voice, verdict, out.with_name(f"{out.name}.png"))):
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
            "log": [asdict(each) for each in read.models],
            "rows": {entry["name"]: entry["rows"] for entry in provenance.clients},
            "parent": provenance.parent,
            "change": dict(provenance.change),
            "warnings": list(read.warnings),
            **document,
            "next": steps,
        }
    )


def next_steps(encoder: str, out: Path) -> list[str]:
    """What to type next; a router reads text if its encoder is at hand."""
    from fedrouter.encoders import OFFLINE, STATIC

    if encoder in (STATIC, OFFLINE):
        return [f'fedrouter route {quoted(out)} "Write a SQL query that counts orders by month."']
    return [f"fedrouter show {quoted(out)}"]


def _from_store(voice: Voice, saved: Bundle | None, sources: Mapping[str, str], out: Path, quality: float) -> None:
    """The router of all evidence in a gateway's store, also of rows that were deleted since, beside a bundle."""
    from fedrouter.bundle import Provenance, save
    from fedrouter.learning.learner import learned_router
    from fedrouter.learning.traffic import encoder_in
    from fedrouter.routers.bayes import BayesRouter
    from fedrouter.store.store import Store

    if len(sources) > 1:
        raise BadInput("a gateway's store is learned from alone; leave out the other logs")
    ((owner, source),) = sources.items()
    # A router of another family has no evidence; it is replaced by one of the log alone.
    base = saved.router if saved is not None and isinstance(saved.router, BayesRouter) else None
    known = {} if saved is None or base is None else saved.clients
    if "learnt_until" in known.get(owner, {}):
        raise BadInput("--with: the bundle has evidence of this store already; grow the one that it was made from")
    if owner in known:
        raise BadInput(f"a client of this router's federation has the name of the gateway's log, {owner!r}")
    with Store.open(source, create=False) as store:
        encoder = encoder_in(store) if saved is None else saved.encoder
        router, rows, until = learned_router(store, encoder, base)
    entry = {"name": owner, "rows": rows, "learnt_until": until}
    change = {"verb": "learn", "family": router.family, "rows": rows, "learnt_until": until, "quality": quality}
    if saved is None or base is None:
        provenance = Provenance("log", "", 0, 1, [entry], {}, change=change)
    else:
        provenance = saved.child([*known.values(), entry], change)
    save(out, router, encoder, provenance)
    voice.say(f"Learned from {rows:,} scored requests.")
    warnings = []
    if saved is not None and base is not None and base.evidence.features.cells is not None:
        # A store keeps sums of rows that may be gone, so features that are found in rows cannot be added to them.
        warnings = [
            f"{saved.path} tells cells of similar queries apart; learned from a store, the router no longer does. To "
            f"keep them, learn from the rows: fedrouter log --store {quoted(source)} --out rows.parquet && "
            f"fedrouter learn {quoted(owner)}=rows.parquet --with {quoted(saved.path)} --out {quoted(f'{out}-cells')}"
        ]
        voice.warn(warnings[0])
    of = f"; its parent is {saved.path}" if saved is not None else ""
    voice.say(f"Bundle: {out}, version {provenance.version}{of}")
    steps = [f"fedrouter bundle use {quoted(out)} --store {quoted(source)}", f"fedrouter show {quoted(out)}"]
    voice.next(*steps)
    voice.result(
        {
            "bundle": str(out),
            "version": provenance.version,
            "family": router.family,
            "encoder": encoder.name,
            "models": list(router.pool.names),
            "rows": {each["name"]: each["rows"] for each in provenance.clients},
            "parent": provenance.parent,
            "change": change,
            "warnings": warnings,
            "next": steps,
        }
    )
