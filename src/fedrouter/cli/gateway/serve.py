"""`fedrouter serve` and `fedrouter bundle`: run the gateway, and switch the bundle that it serves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrouter.cli.gateway.stores import DEFAULT, StoreUrl, open_store, shown_time
from fedrouter.cli.output import BundlePath, Json, Voice, quoted
from fedrouter.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from fedrouter.gateway.config import Config
    from fedrouter.gateway.gateway import Gateway

bundle = typer.Typer(help="Switch the router that all gateways on a store serve.", no_args_is_help=True)


def serve(
    config: Annotated[Path | None, typer.Option("--config", help="The gateway's YAML file.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; default: the config's.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="0 for any free port; default: the config's."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=256,
            help="Processes that share the port, under a supervisor; default: one process.",
        ),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve simulated models on loopback; needs no config.")] = False,
    as_json: Json = False,
) -> None:
    """Run the gateway: an OpenAI-compatible server that routes each request to one of your models."""
    voice = Voice(as_json)
    if demo == (config is not None):
        raise BadInput("serve: expected --config FILE, which `fedrouter init` writes, or --demo")
    require_gateway()
    if config is not None:
        _serve_config(voice, config, host, port, workers)
    elif workers is not None:
        raise BadInput("--workers: not with --demo, whose models live in one process")
    else:
        _serve_demo(voice, host, port)


def _serve_config(voice: Voice, path: Path, host: str | None, port: int | None, workers: int | None) -> None:
    from fedrouter.gateway.config_file import read_config
    from fedrouter.gateway.gateway import open_gateway
    from fedrouter.gateway.server import serve as run
    from fedrouter.gateway.server import serve_by_workers
    from fedrouter.gateway.workers import current_worker

    def read() -> Config:
        config = read_config(path)
        given = {"host": host or config.server.host, "port": config.server.port if port is None else port}
        return config.replace(server=config.server.replace(**given))

    async def reopened(before: Gateway) -> Gateway:
        return await open_gateway(await asyncio.to_thread(read), before=before, workers=workers or 1)

    config = read()
    if workers is not None and current_worker() is None:
        ready = partial(announce, voice, auth=config.server.auth)
        serve_by_workers(config.server, workers, ready, read)
    else:
        run(config, lambda url, key: announce(voice, url, key, auth=config.server.auth), reopened=reopened)


def _serve_demo(voice: Voice, host: str | None, port: int | None) -> None:
    from fedrouter.gateway.config import ServerConfig
    from fedrouter.gateway.demo import open_demo, placeholder
    from fedrouter.gateway.server import serve as run

    server = ServerConfig(host=host or "127.0.0.1", port=8080 if port is None else port)
    with tempfile.TemporaryDirectory(prefix="fedrouter-demo-") as folder:
        voice.say("[yellow]Simulated:[/] fictional models whose answers have no meaning. Learning a router …")
        store = f"sqlite:///{Path(folder) / 'log.db'}"
        run(
            placeholder(server),
            lambda url, key: announce(voice, url, key, store),
            lambda: open_demo(Path(folder), server, traffic=True),
        )


def announce(voice: Voice, url: str, key: str | None, store: str | None = None, auth: bool = True) -> None:
    """Report that the gateway is ready: one line of JSON, or for people how to try it. The key is shown only here."""
    if voice.as_json:
        sys.stdout.write(json.dumps({"url": url, "key": key}) + "\n")
        sys.stdout.flush()
        return
    voice.say(f"[bold]Ready:[/] {url}/v1   (Ctrl+C stops it)")
    if auth:  # without keys there is no page
        voice.say(f"[bold]Page:[/] {url}/   sign in with a key")
    if key is not None:
        voice.say(f"[bold]Key:[/] {key}   shown only once")
    header = f'-H "Authorization: Bearer {key or "$FEDROUTER_KEY"}" ' if auth else ""
    commands = []
    if auth and not key:
        voice.say("Put a key of this store into FEDROUTER_KEY; `fedrouter key create NAME` makes one.")
        commands.append("export FEDROUTER_KEY=YOUR_KEY")
    commands += [
        f"curl -i {url}/v1/chat/completions {header}-H 'Content-Type: application/json' "
        """-d '{"model": "auto", "messages": [{"role": "user", "content": "Write a SQL query that counts orders."}]}'"""
    ]
    if store is not None:
        commands.append(f"fedrouter usage --store {quoted(store)}")
    voice.next(*commands)


def require_gateway() -> None:
    """Fail with one line if a package of the gateway is missing."""
    try:
        import granian  # noqa: F401
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import pydantic  # noqa: F401
        import sqlalchemy  # noqa: F401
        import starlette  # noqa: F401
        import threadpoolctl  # noqa: F401
    except ImportError:
        raise MissingExtra("The gateway", "serve") from None


@bundle.command()
def use(
    path: BundlePath,
    store: StoreUrl = DEFAULT,
    as_json: Json = False,
) -> None:
    """Put a bundle into service; gateways on the store verify it and swap within seconds."""
    from fedrouter.bundle import load

    voice = Voice(as_json)
    saved = load(path)
    with open_store(store) as opened:
        row = opened.set_current(saved.manifest["digest"], os.path.abspath(path))
    voice.say(f"{path}: version {saved.version}, {saved.router.family}; gateways on this store are swapping to it")
    voice.next(f"fedrouter bundle rollback --store {quoted(store)}")
    voice.result(row.to_json())


@bundle.command()
def rollback(store: StoreUrl = DEFAULT, as_json: Json = False) -> None:
    """Go back to the bundle before, or to what gateways learn."""
    voice = Voice(as_json)
    with open_store(store) as opened:
        row = opened.roll_back()
    if row is None:
        voice.say("no bundle is in service now: gateways on this store serve what they learn")
    else:
        voice.say(f"back to {row.path}, in service since {shown_time(row.at)}")
    voice.result({} if row is None else row.to_json())
