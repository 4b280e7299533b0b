"""`fedrouter key`: API keys of the gateway; a token is shown once, when it is created."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrouter.cli.gateway.stores import ConfigPath, StoreUrl, open_store, plain, shown_time
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

app = typer.Typer(help="Create, list or disable the gateway's API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    daily_budget: Annotated[
        float | None, typer.Option("--daily-budget", min=0, help="US dollars per day (UTC); default: no limit.")
    ] = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="Requests per minute; default: no limit.")] = None,
    admin: Annotated[
        bool,
        typer.Option("--admin", help="Can see and score the decisions of all keys, and read /metrics."),
    ] = False,
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Create a key and show its token, once."""
    voice = Voice(as_json)
    with open_store(store, config, create=True) as log:
        identity, token = log.create_key(name, daily_budget, rate, admin)
    voice.say(f"{identity} ({plain(name)}). The token is shown only now; the store keeps its hash.\n")
    if not as_json:
        voice.console.print(f"  {token}", soft_wrap=True, markup=False)
    made = {"id": identity, "name": name, "token": token, "admin": admin}
    voice.result(made | {"daily_budget": daily_budget, "rate_per_minute": rate})


@app.command("list")
def list_keys(store: StoreUrl = None, config: ConfigPath = None, as_json: Json = False) -> None:
    """List the keys, without their tokens."""
    voice = Voice(as_json)
    with open_store(store, config) as log:
        keys = log.all_keys()
    voice.table(
        ["id", "name", "created (UTC)", "$ per day", "per minute", "admin", "state"],
        [
            [
                key.id,
                plain(key.name),
                shown_time(key.created),
                "-" if key.daily_budget is None else f"{key.daily_budget:.2f}",
                "-" if key.rate_per_minute is None else str(key.rate_per_minute),
                "yes" if key.admin else "-",
                "disabled" if key.disabled else "enabled",
            ]
            for key in keys
        ],
    )
    voice.result({"keys": [key.to_json() for key in keys]})


@app.command()
def disable(
    identity: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `fedrouter key list` shows it.")],
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Disable a key permanently; its log stays."""
    voice = Voice(as_json)
    with open_store(store, config) as log:
        if not log.disable_key(identity):
            raise BadInput(f"key {identity!r}: not in {log.where}; `fedrouter key list` shows the ids")
    voice.say(f"{plain(identity)} is disabled")
    voice.result({"id": identity, "disabled": True})
