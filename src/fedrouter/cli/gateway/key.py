"""`fedrouter key`: API keys of the gateway; a token is shown once, when it is created."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.gateway.stores import ConfigPath, StoreUrl, deadline, open_store, plain, shown_time
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.store.records import Key

app = typer.Typer(help="Create, list, edit or disable the gateway's API keys.", no_args_is_help=True)

Budget = Annotated[
    float | None, typer.Option("--daily-budget", min=0, help="US dollars per day (UTC); default: no limit.")
]
Rate = Annotated[int | None, typer.Option("--rate", min=1, help="Requests per minute; default: no limit.")]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="When it expires: a date (UTC), or a time from now (30d, 12h)."),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="A model that it may use, also with * and ?; can be repeated."),
]
Dial = Annotated[float | None, typer.Option("--dial", min=0, max=10, help="Default of its requests, cheapest to best.")]
Quality = Annotated[float | None, typer.Option("--quality", min=0, max=1, help="Default of its requests, instead.")]
Tradeoff = Annotated[float | None, typer.Option("--tradeoff", min=0, help="Default λ of its requests, instead.")]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", min=0, help="US dollars that a request of it may be expected to cost.")
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    daily_budget: Budget = None,
    rate: Rate = None,
    expires: Expires = None,
    models: Models = None,
    dial: Dial = None,
    quality: Quality = None,
    tradeoff: Tradeoff = None,
    max_cost: MaxCost = None,
    admin: Annotated[
        bool,
        typer.Option("--admin", help="Can see and score the decisions of all keys, read /metrics and administer keys."),
    ] = False,
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Create a key and show its token, once."""
    voice = Voice(as_json)
    given = _given(daily_budget, rate, expires, models, dial, quality, tradeoff, max_cost)
    with open_store(store, config, create=True) as log:
        identity, token = log.create_key(name, admin=admin, **given)
    voice.say(f"{identity} ({plain(name)}). The token is shown only now; the store keeps its hash.\n")
    if not as_json:
        voice.console.print(f"  {token}", soft_wrap=True, markup=False)
    made = {"id": identity, "name": name, "token": token, "admin": admin}
    voice.result(made | {"daily_budget": daily_budget, "rate_per_minute": rate} | given)


@app.command("list")
def list_keys(store: StoreUrl = None, config: ConfigPath = None, as_json: Json = False) -> None:
    """List the keys, without their tokens."""
    voice = Voice(as_json)
    with open_store(store, config) as log:
        keys = log.all_keys()
    voice.table(
        ["id", "name", "limits", "models", "default", "state"],
        [
            [
                key.id,
                plain(key.name),
                _limits(key),
                "all" if key.models is None else plain(", ".join(key.models)),
                _default(key),
                _state(key),
            ]
            for key in keys
        ],
        wrapped=("name", "limits", "models", "default", "state"),  # an id must be copied whole
    )
    voice.result({"keys": [key.to_json() for key in keys]})


@app.command()
def edit(
    identity: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `fedrouter key list` shows it.")],
    name: Annotated[str | None, typer.Option("--name", help="What the key is for.")] = None,
    daily_budget: Budget = None,
    rate: Rate = None,
    expires: Expires = None,
    models: Models = None,
    dial: Dial = None,
    quality: Quality = None,
    tradeoff: Tradeoff = None,
    max_cost: MaxCost = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="SETTING", help="Remove a setting, such as models; can be repeated."),
    ] = None,
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Change settings of a key; gateways follow within seconds."""
    voice = Voice(as_json)
    changes = _given(daily_budget, rate, expires, models, dial, quality, tradeoff, max_cost)
    changes = {setting.replace("-", "_"): None for setting in unset or []} | changes
    if name is not None:
        changes["name"] = name
    if not changes:
        raise BadInput("key edit: expected something to change, such as --daily-budget 5 or --unset models")
    with open_store(store, config) as log:
        found = log.edit_key(identity, changes)
        if found is None:
            raise BadInput(f"key {identity!r}: not in {log.where}, or disabled; `fedrouter key list` shows the ids")
    voice.say(f"{plain(identity)} ({plain(found.name)}) was changed")
    voice.result(found.to_json())


def _given(
    daily_budget: float | None,
    rate: int | None,
    expires: str | None,
    models: list[str] | None,
    dial: float | None,
    quality: float | None,
    tradeoff: float | None,
    max_cost: float | None,
) -> dict[str, Any]:
    """The settings that were given on the command line."""
    found = {
        "daily_budget": daily_budget,
        "rate_per_minute": rate,
        "expires": deadline(expires, "--expires"),
        "models": models or None,
        "dial": dial,
        "quality": quality,
        "tradeoff": tradeoff,
        "max_cost": max_cost,
    }
    return {name: value for name, value in found.items() if value is not None}


def _default(key: Key) -> str:
    """What its requests have that set nothing else."""
    names = ("dial", "quality", "tradeoff", "max_cost")
    return ", ".join(f"{name} {getattr(key, name):g}" for name in names if getattr(key, name) is not None) or "-"


def _limits(key: Key) -> str:
    found = [] if key.daily_budget is None else [f"${key.daily_budget:.2f} a day"]
    found += [] if key.rate_per_minute is None else [f"{key.rate_per_minute} a minute"]
    return ", ".join(found) or "-"


def _state(key: Key) -> str:
    if key.disabled:
        return "disabled"
    state = "admin" if key.admin else "enabled"
    if key.expires is None:
        return state
    return f"{'expired' if key.expires <= time.time() else f'{state} until'} {shown_time(key.expires)[:10]}"


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
            raise BadInput(f"key {identity!r}: not in {log.where}, or disabled; `fedrouter key list` shows the ids")
    voice.say(f"{plain(identity)} is disabled")
    voice.result({"id": identity, "disabled": True})
