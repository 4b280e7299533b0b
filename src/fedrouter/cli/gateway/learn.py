"""`fedrouter learn`: a first router from a log, or a new version from the new feedback in a gateway's log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrouter.cli.gateway.stores import ConfigPath, Since, StoreUrl, moment, open_store
from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.protocol_options import DeviceOption
from fedrouter.cli.router.grow import Out, Seed, Test
from fedrouter.cli.router.saved import areas_before_and_after
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.evaluations import Evaluations


def learn(
    out: Out,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Folder of the router to start from; none: a first router.")
    ] = None,
    clients: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME=FILE", help="Learn a first router from log files; repeatable."),
    ] = None,
    router: Annotated[str, typer.Option("--router", help="Family of a first router.")] = "auto",
    store: StoreUrl = None,
    config: ConfigPath = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Make a personal router: the bundle's, weighed against the log's own.")
    ] = False,
    since: Since = None,
    name: Annotated[str, typer.Option("--name", help="Name of the log among the router's clients.")] = "gateway",
    device: DeviceOption = "cpu",
    seed: Seed = 0,
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Learn from the scored requests in a gateway's log that the router has not learned from yet.

    Without --bundle it learns a first router, from all scored requests or from log files: from one file alone, from
    several as a federation in this process under the default privacy.

    A router whose state is sums adds each request as one more row, exactly. A score that was corrected after it was
    learned from is subtracted first.
    """
    from fedrouter.bundle import load, refuse_existing, save
    from fedrouter.encoders.device import use_device
    from fedrouter.learning.from_log import learn_from_log, personalize_from_log

    voice = Voice(as_json)
    use_device(device)
    refuse_existing(out)
    if bundle is None:
        _first(voice, out, clients or [], router, (store, config), since, name, seed, personal or bool(test))
        return
    if clients:
        raise BadInput("--client: a bundle learns from more logs by `fedrouter client join`; leave out --bundle")
    saved = load(bundle)
    start = moment(since, "--since")
    with open_store(store, config) as log:
        if personal or saved.router.family == "personal":
            learned = personalize_from_log(saved, log, start, seed)
        else:
            learned = learn_from_log(saved, log, name, start, seed)
        where = log.where
    areas = areas_before_and_after(voice, saved, learned.router, test)
    save(out, learned.router, saved.encoder, learned.provenance)
    corrected = f", {learned.corrected:,} of them corrected" if learned.corrected else ""
    voice.say(f"Learned from {learned.rows:,} scored requests{corrected}.")
    for why, count in learned.left_out.items():
        voice.say(f"  left out: {count:,} ({why})")
    for model, count in learned.waiting.items():
        voice.say(f"  {model}: {count} scored requests, too few for a new model; they are kept for the next time")
    voice.say(f"Version {learned.provenance.version} is in {out}; its parent is {bundle}.")
    voice.next(
        f"fedrouter bundle use {quoted(out)}",
        f"fedrouter evaluate {quoted(out)} --log {quoted(store or where)}   (on requests from now on)",
    )
    voice.result(
        {
            "bundle": str(out),
            "version": learned.provenance.version,
            "parent": learned.provenance.parent,
            "change": learned.provenance.change,
            **learned.to_json(),
            "models": list(learned.router.pool.names),
            **({"areas": areas} if areas else {}),
        }
    )


def _first(
    voice: Voice,
    out: Path,
    clients: list[str],
    router: str,
    where: tuple[str | None, Path | None],
    since: str | None,
    name: str,
    seed: int,
    needs_bundle: bool,
) -> None:
    """Learn and save a first router; ``where`` is --store and --config."""
    if needs_bundle:
        raise BadInput("--personal, --test: expected --bundle, the router to start from")
    if clients:
        _from_files(voice, out, clients, router, seed)
    else:
        _from_log(voice, out, router, where, since, name, seed)


def _from_log(
    voice: Voice, out: Path, family: str, where: tuple[str | None, Path | None], since: str | None, name: str, seed: int
) -> None:
    from fedrouter.bundle import save
    from fedrouter.encoders.registry import open_encoder
    from fedrouter.learning.first_router import encoder_of, first_from_log
    from fedrouter.pool import ModelPool

    with open_store(*where) as log:
        records = list(log.rows(moment(since, "--since"), scored_only=True))
    encoder = open_encoder(encoder_of(records)).identity()
    pool = ModelPool(sorted({record.served for record in records if record.served is not None}))
    learned = first_from_log(records, pool, encoder, family, name, seed)
    save(out, learned.router, encoder, learned.provenance)
    voice.say(f"Learned a first router from the log's scored requests, {learned.rows:,}; it is in {out}.")
    for why, count in learned.left_out.items():
        voice.say(f"  left out: {count:,} ({why})")
    _warn_of_few(voice, learned.rows)
    voice.next(f"fedrouter bundle use {quoted(out)}")
    voice.result({"bundle": str(out), "version": 1, "models": list(pool.names), **learned.to_json()})


def _from_files(voice: Voice, out: Path, clients: list[str], family: str, seed: int) -> None:
    from fedrouter.bundle import Provenance, save
    from fedrouter.data.read import read
    from fedrouter.learning.first_router import learn_router
    from fedrouter.pool import ModelPool

    paths: dict[str, Path] = {}
    for entry in clients:
        client, _, path = entry.partition("=")
        if not client or not path:
            raise BadInput(f"--client: expected NAME=FILE, got {entry!r}")
        if client in paths:
            raise BadInput(f"--client: {client} is named twice")
        paths[client] = Path(path)
    with bars() as shown:
        data = {
            client: read(path, watch=lambda done, total: shown.move("encoding", done, total))
            for client, path in paths.items()
        }
    first = next(iter(data.values()))
    for client, dataset in data.items():
        if not first.encoder.matches(dataset.encoder):
            raise BadInput(f"{paths[client]}: made for the encoder {dataset.encoder}, expected {first.encoder}")
    models = {model.name: model for dataset in data.values() for model in dataset.evaluations.pool}
    pool = ModelPool([models[name] for name in sorted(models)])
    rows: dict[str, Evaluations] = {client: dataset.evaluations.over(pool) for client, dataset in data.items()}
    router, settings = learn_router(rows, family, seed)
    counts = {client: len(own) for client, own in rows.items()}
    digest = first.digest if len(data) == 1 else ""
    save(out, router, first.encoder, Provenance.of_run(", ".join(counts), digest, seed, counts, settings))
    how = "alone" if len(rows) == 1 else "as a federation in this process, under the default privacy"
    voice.say(f"Learned from {sum(counts.values()):,} evaluations of {', '.join(counts)} ({how}); it is in {out}.")
    _warn_of_few(voice, sum(counts.values()))
    voice.next(
        f'fedrouter route {quoted(out)} "your query" --tradeoff 100 --explain', f"fedrouter bundle use {quoted(out)}"
    )
    voice.result(
        {"bundle": str(out), "version": 1, "family": router.family, "models": list(pool.names), "rows": counts}
    )


def _warn_of_few(voice: Voice, rows: int) -> None:
    from fedrouter.learning.trial import LEAST_ROWS

    if rows < LEAST_ROWS:
        voice.warn(
            f"{rows} evaluations say little about models; a gateway waits for {LEAST_ROWS} before it learns by itself"
        )
