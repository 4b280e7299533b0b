"""`fedrouter key`: API keys of the gateway; a token is shown once, when it is created."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.gateway.stores import DEFAULT, StoreUrl, deadline, open_store, plain, shown_time
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.store.records import Key

app = typer.Typer(help="Create, list, edit or revoke the gateway's API keys.", no_args_is_help=True)
NUMERIC = ("daily_budget", "rate_per_minute", "dial", "quality", "tradeoff", "max_cost")

Identity = Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `fedrouter key list` shows it.")]
Given = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SETTING=VALUE]…",
        help="daily_budget (US dollars, UTC day), rate_per_minute, expires (a date, or 30d from now), models "
        "(names with commas, also with * and ?), max_cost (of a request); and for its requests a dial (0 to 10), "
        "quality or tradeoff.",
    ),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    given: Given = None,
    admin: Annotated[bool, typer.Option("--admin", help="It administers keys and sees everybody's decisions.")] = False,
    store: StoreUrl = DEFAULT,
    as_json: Json = False,
) -> None:
    """Create a key and show its token, once."""
    voice = Voice(as_json)
    settings = {setting: value for setting, value in _settings(given or []).items() if value is not None}
    with open_store(store, create=True) as log:
        admin = admin or not log.all_keys()  # somebody must be able to administer the others
        identity, token = log.create_key(**{"name": name} | settings, admin=admin)
    kind = "an admin key" if admin else "a key"
    voice.say(f"{identity} ({plain(name)}), {kind}. The token is shown only now; the store keeps its hash.\n")
    if not as_json:
        voice.console.print(f"  {token}", soft_wrap=True, markup=False)
    voice.result({"id": identity, "name": name, "token": token, "admin": admin} | settings)


@app.command("list")
def list_keys(store: StoreUrl = DEFAULT, as_json: Json = False) -> None:
    """List the keys, without their tokens."""
    voice = Voice(as_json)
    with open_store(store) as log:
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
def edit(identity: Identity, given: Given = None, store: StoreUrl = DEFAULT, as_json: Json = False) -> None:
    """Change settings of a key, or its name; `models=` removes one. Gateways follow within seconds."""
    voice = Voice(as_json)
    changes = _settings(given or [])
    if not changes:
        raise BadInput("key edit: expected something to change, such as daily_budget=5, or models= for no limit")
    with open_store(store) as log:
        found = log.edit_key(identity, changes)
        if found is None:
            raise BadInput(f"key {identity!r}: not in {log.where}, or revoked; `fedrouter key list` shows the ids")
    voice.say(f"{plain(identity)} ({plain(found.name)}) was changed")
    voice.result(found.to_json())


def _settings(given: list[str]) -> dict[str, Any]:
    """The values of ``SETTING=VALUE``, by the names that POST /v1/keys has; None for a setting to remove."""
    found: dict[str, Any] = {}
    for text in given:
        setting, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"{text}: expected SETTING=VALUE, such as daily_budget=5")
        if not value:
            found[setting] = None
        elif setting == "expires":
            found[setting] = deadline(value, setting)
        elif setting == "models":
            found[setting] = [name.strip() for name in value.split(",")]
        elif setting in NUMERIC:
            found[setting] = _number(setting, value)
        else:  # the store knows which settings there are
            found[setting] = value
    return found


def _number(setting: str, value: str) -> float:
    try:
        return int(value) if setting == "rate_per_minute" else float(value)
    except ValueError:
        raise BadInput(f"{setting}: expected a number, got {value!r}") from None


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
        return "revoked"
    state = "admin" if key.admin else "enabled"
    if key.expires is None:
        return state
    return f"{'expired' if key.expires <= time.time() else f'{state} until'} {shown_time(key.expires)[:10]}"


@app.command()
def revoke(identity: Identity, store: StoreUrl = DEFAULT, as_json: Json = False) -> None:
    """Revoke a key permanently; its log stays."""
    voice = Voice(as_json)
    with open_store(store) as log:
        if not log.disable_key(identity, keep_admin=True):
            raise BadInput(f"key {identity!r}: not in {log.where}, or revoked; `fedrouter key list` shows the ids")
    voice.say(f"{plain(identity)} is revoked")
    voice.result({"id": identity, "disabled": True})
