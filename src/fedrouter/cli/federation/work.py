"""`fedrouter federation coordinator` and `… client`: processes that run until Ctrl-C or `… stop`."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.federation.options import CoordinatorPath
from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice, print_line, quoted
from fedrouter.cli.protocol_options import DeviceOption
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.deployment.state.config import ClientConfig, FederationConfig


def coordinator(
    path: CoordinatorPath,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Address to listen on, if not the one that init set; remembered."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at http://HOST:PORT/metrics."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the coordinator until Ctrl-C; with --json it prints one line of JSON once it is ready."""
    from fedrouter.deployment.coordinator.run_coordinator import run_coordinator
    from fedrouter.deployment.metrics import serving_metrics
    from fedrouter.deployment.state.config import check_address
    from fedrouter.deployment.state.directories import open_coordinator
    from fedrouter.deployment.state.process_lock import require_free, require_unused
    from fedrouter.files import append_to

    voice = Voice(as_json)
    directory = open_coordinator(path)
    require_free(directory.pid_file)
    append_to(directory.log_file).close()
    address = check_address(listen) if listen is not None else directory.config().listen
    require_unused(address)
    if listen is not None:
        with directory.editing() as config:
            directory.write_config(replace(config, listen=address))

    def on_ready(config: FederationConfig) -> None:
        names = ", ".join(sorted(config.roster)) or "no client yet"
        voice.say(f"[bold]Ready[/] for clients at {config.address}   (Ctrl+C stops it)")
        voice.say(f"On the roster: {names}")
        voice.next(
            f"fedrouter federation enroll {quoted(path)} NAME client.pub",
            f"fedrouter federation run {quoted(path)}",
        )
        _line(
            voice,
            {"ready": True, "address": config.address, "listen": config.listen, "log": str(directory.log_file)},
        )

    said = lambda text: voice.say(f"{shown_time(time.time())}   {plain(text)}")  # noqa: E731
    with serving_metrics(directory, metrics) if metrics else nullcontext():
        run_coordinator(directory, on_ready, said)
    voice.say("Stopped")


def client(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The client's state directory.")],
    log: Annotated[Path | None, typer.Option("--log", help="Evaluation log (.parquet, .csv); remembered.")] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="Or a gateway's store (sqlite:///PATH, postgresql://…); remembered.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Encoder whose embeddings to use, if not the log's own; remembered.")
    ] = None,
    floor: Annotated[
        int | None,
        typer.Option("--floor", min=2, help="Minimum number of queries behind anything sent; remembered; default: 5."),
    ] = None,
    secure_only: Annotated[
        bool | None,
        typer.Option(
            "--secure-only/--no-secure-only",
            help="Send sums under secure aggregation only; remembered; default: only.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Noise on each release, as ε; remembered; default: 8; 0: no noise."),
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option("--peers", help="Folder of NAME.pub from all clients, to authenticate them directly; remembered."),
    ] = None,
    device: DeviceOption = "cpu",
    as_json: Json = False,
) -> None:
    """Take part with this client's evaluations until Ctrl-C; reconnects automatically."""
    from fedrouter.deployment.client.run_client import run_client
    from fedrouter.deployment.delivery.pull import keep_pulling
    from fedrouter.deployment.state.directories import open_client
    from fedrouter.deployment.state.process_lock import require_free
    from fedrouter.encoders.device import use_device
    from fedrouter.federation.privacy.journal import Journal
    from fedrouter.files import append_to

    voice = Voice(as_json)
    use_device(device)
    directory = open_client(path)
    config = _with_evaluations(directory.config(), log, store, encoder)
    config = replace(config, privacy=with_privacy(config.privacy, floor, secure_only, epsilon))
    if peers is not None:
        from fedrouter.deployment.state.keys import read_peers

        config = replace(config, peers=read_peers(peers))
    voice.say(f"Reading the evaluations of {config.name}")
    summary = _check(config)
    # Everything that a run will need is opened now, so that a start that is refused has changed nothing.
    require_free(directory.pid_file)
    for file in (directory.log_file, directory.refusals):
        append_to(file).close()
    Journal(directory.journal).close()
    directory.write_config(config)
    models = len(summary["models"])
    voice.say(f"{config.name}: {summary['evaluations']:,} evaluations of {models} models, {summary['encoder']}")
    voice.say(protection(config))

    def on_connect() -> None:
        voice.say(f"[bold]Connected[/] to {config.coordinator}   (Ctrl+C stops it)")
        _line(voice, {"connected": True, "name": config.name, "coordinator": config.coordinator, **summary})

    said = lambda text: voice.say(f"{shown_time(time.time())}   {plain(text)}")  # noqa: E731
    stopping = threading.Event()
    threading.Thread(target=keep_pulling, args=(directory, stopping, said), daemon=True).start()
    try:
        run_client(directory, on_connect, said)
    finally:
        stopping.set()
    voice.say("Stopped")


def _with_evaluations(config: ClientConfig, log: Path | None, store: str | None, encoder: str | None) -> ClientConfig:
    """The remembered config with the options that were given now."""
    if log is not None and store is not None:
        raise BadInput("--log and --store: expected one of them")
    if log is not None:
        config = replace(config, log=str(log.absolute()), store=None)
    if store is not None:
        config = replace(config, log=None, store=store)
    if config.log is None and config.store is None:
        raise BadInput("expected --log FILE or --store URL: this client's evaluations")
    if encoder is not None:
        config = replace(config, encoder=encoder)
    return config


def with_privacy(
    privacy: Mapping[str, Any], floor: int | None, secure_only: bool | None, epsilon: float | None
) -> Mapping[str, Any]:
    """The remembered privacy settings with the options that were given now."""
    given = dict(privacy)
    if floor is not None:
        given["floors"] = {"cluster": floor, "cell": floor}
    if secure_only is not None:
        given["secure_only"] = secure_only
    if epsilon is not None:
        given["noise"] = {**(given.get("noise") or {}), "epsilon": epsilon} if epsilon else None
    return given


def protection(config: ClientConfig) -> str:
    """What protects this client, in one line: noise on a release, minimum group sizes, secure sums."""
    from fedrouter.deployment.client.local_client import privacy_of

    policy = privacy_of(config)
    noise, sizes = policy.noise, policy.minimum_sizes
    parts = [
        f"noise of ε {noise.epsilon:g} on each release, and ε adds up" if noise and noise.epsilon else "no noise",
        f"at least {sizes.cell} queries behind anything else" if sizes else "no minimum group sizes",
        "under secure sums only" if policy.secure_only else "sums in the clear are allowed",
    ]
    return f"Protection: {', '.join(parts)}"


def _check(config: ClientConfig) -> dict[str, Any]:
    """Read everything once, so that errors are shown here; the coordinator would see only their type."""
    from fedrouter.deployment.client.local_client import evaluations_of, privacy_of
    from fedrouter.federation.plausibility import MOST_MODELS, MOST_NAME, fits_name

    privacy_of(config)
    evaluations, encoder = evaluations_of(config)
    unfit = [name for name in evaluations.pool.names if not fits_name(name)]
    if unfit or len(evaluations.pool) > MOST_MODELS:
        found = f"got {unfit[0]!r}" if unfit else f"got {len(evaluations.pool)}"
        raise BadInput(
            f"models: expected at most {MOST_MODELS}, with names of 1 to {MOST_NAME} printable characters; {found}"
        )
    return {"evaluations": len(evaluations), "models": list(evaluations.pool.names), "encoder": encoder.name}


def _line(voice: Voice, document: dict[str, Any]) -> None:
    if voice.as_json:
        print_line(document)
