"""`fedrouter federation coordinator` and `… client`: the processes that stay, until Ctrl-C or `… stop`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.deployment.settings import Charter, ClientSettings


def coordinator(
    path: Annotated[Path, typer.Argument(metavar="HOME", help="The coordinator's folder.")],
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Where to listen, if not as init set it; remembered."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start the coordinator and stay until Ctrl-C; with --json one line of JSON once it is ready."""
    from fedrouter.deployment.coordinator import coordinate
    from fedrouter.deployment.homes import open_coordinator
    from fedrouter.deployment.settings import check_address

    voice = Voice(as_json)
    home = open_coordinator(path)
    if listen is not None:
        with home.changing() as charter:
            home.write_charter(replace(charter, listen=check_address(listen)))

    def ready(charter: Charter) -> None:
        names = ", ".join(sorted(charter.roster)) or "nobody yet"
        voice.say(f"[bold]Ready[/] for clients at {charter.address}   (Ctrl+C stops it)")
        voice.say(f"On the roster: {names}")
        voice.next(
            f"fedrouter federation enroll {path} NAME client.pub", f"fedrouter federation run {path} --router auto"
        )
        _line(voice, {"ready": True, "address": charter.address, "listen": charter.listen, "log": str(home.log_file)})

    coordinate(home, ready, lambda words: voice.say(plain(words)))
    voice.say("Stopped")


def client(
    path: Annotated[Path, typer.Argument(metavar="HOME", help="The client's folder.")],
    log: Annotated[Path | None, typer.Option("--log", help="Evaluation log (.parquet, .csv); remembered.")] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="Or a gateway's store (sqlite:///PATH, postgresql://…); remembered.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Whose embeddings to use, if not the log's own; remembered.")
    ] = None,
    floor: Annotated[
        int | None,
        typer.Option("--floor", min=2, help="Fewest queries behind anything that is sent; remembered. [default: 5]"),
    ] = None,
    secure_only: Annotated[
        bool | None,
        typer.Option("--secure-only/--no-secure-only", help="Send sums only where they are hidden; remembered."),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Differential privacy: the budget for all that is ever sent; remembered."),
    ] = None,
    multiplier: Annotated[
        float | None, typer.Option("--multiplier", help="With --epsilon: noise on one answer; remembered. [default: 4]")
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option(
            "--peers", help="Folder of NAME.pub, got from the other clients: then they are known; remembered."
        ),
    ] = None,
    answers: Annotated[
        int | None,
        typer.Option("--answers", min=1, help="Instead of --multiplier: how many answers the budget is to last for."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Take part with this client's evaluations and stay until Ctrl-C; reconnects by itself."""
    from fedrouter.deployment.homes import open_client
    from fedrouter.deployment.node import attend

    voice = Voice(as_json)
    home = open_client(path)
    settings = _settled(home.settings(), log, store, encoder)
    settings = replace(settings, privacy=_private(settings.privacy, floor, secure_only, epsilon, multiplier))
    if peers is not None:
        from fedrouter.deployment.peers import read_peers

        settings = replace(settings, peers=read_peers(peers))
    if answers is not None:
        settings = replace(settings, privacy=_lasting(settings, answers))
    about = _look_at(settings)
    home.write_settings(settings)
    voice.say(
        f"{settings.name}: {about['evaluations']:,} evaluations of {len(about['models'])} models, {about['encoder']}"
    )

    def connected() -> None:
        voice.say(f"[bold]Connected[/] to {settings.coordinator}   (Ctrl+C stops it)")
        _line(voice, {"connected": True, "name": settings.name, "coordinator": settings.coordinator, **about})

    attend(home, connected, lambda words: voice.say(plain(words)))
    voice.say("Stopped")


def _settled(settings: ClientSettings, log: Path | None, store: str | None, encoder: str | None) -> ClientSettings:
    """What was given now over what was remembered."""
    if log is not None and store is not None:
        raise BadInput("--log and --store: expected one of them")
    if log is not None:
        settings = replace(settings, log=str(log.absolute()), store=None)
    if store is not None:
        settings = replace(settings, log=None, store=store)
    if settings.log is None and settings.store is None:
        raise BadInput("expected --log FILE or --store URL: this client's evaluations")
    if encoder is not None:
        settings = replace(settings, encoder=encoder)
    return settings


def _private(
    privacy: Mapping[str, Any],
    floor: int | None,
    secure_only: bool | None,
    epsilon: float | None,
    multiplier: float | None,
) -> Mapping[str, Any]:
    """Likewise, for what the client insists on."""
    given = dict(privacy)
    if floor is not None:
        given["floors"] = {"cluster": floor, "cell": floor}
    if secure_only is not None:
        given["secure_only"] = secure_only
    if epsilon is not None:
        given["noise"] = {**(given.get("noise") or {}), "epsilon": epsilon}
    if multiplier is not None:
        if not given.get("noise"):
            raise BadInput("--multiplier goes with --epsilon")
        given["noise"] = {**given["noise"], "multiplier": multiplier}
    return given


def _lasting(settings: ClientSettings, answers: int) -> Mapping[str, Any]:
    """The privacy with the noise at which the budget lasts for so many answers."""
    from fedrouter.deployment.participant import privacy_of
    from fedrouter.federation.dp.accountant import multiplier_for

    noise = privacy_of(settings).noise
    if noise is None:
        raise BadInput("--answers goes with --epsilon")
    multiplier = multiplier_for(noise.epsilon, noise.delta, answers, noise.mechanism)
    return {**settings.privacy, "noise": {**settings.privacy["noise"], "multiplier": multiplier}}


def _look_at(settings: ClientSettings) -> dict[str, Any]:
    """Read everything once, so that what is wrong is said here; the coordinator would only hear that something is."""
    from fedrouter.deployment.participant import evaluations_of, privacy_of

    privacy_of(settings)
    evaluations, encoder = evaluations_of(settings)
    return {"evaluations": len(evaluations), "models": list(evaluations.pool.names), "encoder": encoder.name}


def _line(voice: Voice, document: dict[str, Any]) -> None:
    if voice.as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
