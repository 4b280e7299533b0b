"""`fedrouter init`: writes a config for the gateway, from flags, a bundle or LiteLLM's config."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.cli.router.verdict import Quality, quality_of
from fedrouter.data.prices import PriceTable, TokenPrice, price_table, read_prices
from fedrouter.errors import BadInput, MissingExtra
from fedrouter.files import PUBLIC, write_new

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.gateway.config import Upstream


def init(
    out: Annotated[Path, typer.Option("--out", help="File to write; it must not exist.")] = Path("gateway.yaml"),
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="NAME of the table of prices, or NAME=http://HOST/v1. Repeat it."),
    ] = None,
    prices: Annotated[
        list[str] | None,
        typer.Option("--price", help="NAME=INPUT/OUTPUT, US dollars per million tokens; overrides the table."),
    ] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--key", help="NAME=VARIABLE: environment variable with a model's API key.")
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="A router that you have: its models, and it serves them.")
    ] = None,
    source: Annotated[
        tuple[str, Path] | None,
        typer.Option("--from", metavar="litellm FILE", help="Models, prices and aliases of a LiteLLM config."),
    ] = None,
    quality: Quality = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the gateway.")] = 8080,
    listed: Annotated[bool, typer.Option("--list", help="Print the table of prices and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Write a commented config for the gateway."""
    from fedrouter.bundle import load

    voice, table = Voice(as_json), price_table()
    if listed:
        _list(voice, table)
        return
    try:
        import fedrouter.gateway.starter as starter
    except ImportError:
        raise MissingExtra("The gateway", "serve") from None
    if out.exists():
        raise BadInput(f"{out}: already exists and is not overwritten; choose another file with --out")
    if not out.parent.is_dir():
        raise BadInput(f"{out.parent}: no such folder")
    saved = None if bundle is None else load(bundle)
    given, variables = read_prices(prices or ()), _variables(keys or ())
    aliases: dict[str, str] = {}
    if source is not None:
        wanted, aliases = _imported(voice, source, given, table)
        wanted += [_upstream(text, given, variables, table) for text in models or ()]
    elif saved is not None:
        wanted = _of_bundle(saved, models or (), given, variables, table)
    elif models:
        wanted = [_upstream(text, given, variables, table) for text in models]
    else:
        raise BadInput(
            "init: expected --model NAME (repeat it), --bundle BUNDLE or --from litellm FILE; `fedrouter init --list` "
            "prints the known names"
        )
    quality = quality_of(quality, saved)
    names = [model.name for model in wanted]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInput(f"--model {twice[0]}: given twice")
    if unused := sorted((given.keys() | variables.keys()) - set(names)):
        raise BadInput(f"--price, --key: no --model {unused[0]}")
    by_table = any(table.models.get(name) and name not in given for name in names)
    served = None if bundle is None else os.path.relpath(bundle.resolve(), out.resolve().parent)
    text = starter.starter_config(wanted, quality, port, table if by_table else None, served, aliases)
    write_new(out, text.encode(), PUBLIC)
    needed = starter.variables(wanted)
    _report(voice, out, wanted, table if by_table else None, needed)


def _report(voice: Voice, out: Path, wanted: Sequence[Upstream], table: PriceTable | None, needed: list[str]) -> None:
    voice.say(f"[bold]{escape(str(out))}[/] is written. US dollars per million tokens:\n")
    rows = [[escape(m.name), f"{m.input_price:g}", f"{m.output_price:g}", escape(m.params.api_base)] for m in wanted]
    voice.table(["model", "input", "output", "address"], rows)
    if table is not None:
        voice.say(f"\nPrices of {table.date}: {table.source}. They change: compare them with the providers' pages.")
    if len(wanted) == 1:
        voice.warn("one model leaves nothing to choose: add another with --model")
    if unset := [variable for variable in needed if not os.environ.get(variable)]:
        voice.say(f"\nPut the models' API keys into the environment: {', '.join(unset)}.")
    voice.next(
        *(f"export {variable}=YOUR_KEY" for variable in unset),
        f"fedrouter show {quoted(out)}",
        f"fedrouter serve --config {quoted(out)}",
    )
    voice.result(
        {
            "config": str(out),
            "models": [model.name for model in wanted],
            "variables": needed,
            "prices": None if table is None else {"date": table.date, "source": table.source},
        }
    )


def _list(voice: Voice, table: PriceTable) -> None:
    """Print the table of prices."""
    rows = [
        [model.name, model.provider.title, f"{model.price.input:g}", f"{model.price.output:g}", model.provider.key]
        for model in table.models.values()
    ]
    voice.table(["model", "provider", "input", "output", "API key in"], rows)
    voice.say(f"\nPrices of {table.date}: {table.source}.\n{table.note}\n")
    providers = {model.provider.title: model.provider for model in table.models.values()}
    voice.table(
        ["provider", "address", "prices"], [[title, each.api_base, each.page] for title, each in providers.items()]
    )
    voice.result(
        {
            "date": table.date,
            "source": table.source,
            "note": table.note,
            "pages": {title: each.page for title, each in providers.items()},
            "models": [
                {
                    "name": m.name,
                    "provider": m.provider.title,
                    "address": m.provider.api_base,
                    "variable": m.provider.key,
                    "input": m.price.input,
                    "output": m.price.output,
                }
                for m in table.models.values()
            ],
        }
    )


def _upstream(text: str, given: dict[str, TokenPrice], variables: dict[str, str], table: PriceTable) -> Upstream:
    """The model of a flag: a name of the table, or a name and an address."""
    from fedrouter.gateway.starter import listed_upstream, own_upstream

    name, equals, address = text.partition("=")
    if not equals:
        model = table.find(name)
        if model is None:
            raise BadInput(
                f"--model {name}: not in the table of prices (`fedrouter init --list`); give its address as "
                f"--model {name}=http://HOST/v1 and its price as --price {name}=INPUT/OUTPUT"
            )
        return listed_upstream(model, given.get(model.name), variables.get(model.name))
    price = given.get(name)
    if price is None:
        raise BadInput(
            f"--model {name}: expected its price too: --price {name}=INPUT/OUTPUT, or {name}=0/0 if it is free"
        )
    return own_upstream(name, address, price, variables.get(name))


def _imported(
    voice: Voice, source: tuple[str, Path], given: dict[str, TokenPrice], table: PriceTable
) -> tuple[list[Upstream], dict[str, str]]:
    """The models and aliases of another tool's config; what is left out is said."""
    from fedrouter.gateway.litellm_config import read_litellm

    tool, path = source
    if tool != "litellm":
        raise BadInput(f"--from {tool}: expected litellm FILE")
    found = read_litellm(path, given, table)
    for each in found.left_out:
        voice.warn(escape(each))
    return found.models, found.aliases


def _of_bundle(
    saved: Bundle, models: Sequence[str], given: dict[str, TokenPrice], variables: dict[str, str], table: PriceTable
) -> list[Upstream]:
    """The models of a bundle's pool: those of the table at their providers, the others where --model says."""
    from fedrouter.gateway.starter import listed_upstream, own_upstream

    addresses = {name: address for name, _, address in (text.partition("=") for text in models)}
    path, pool, found, missing = saved.path, saved.router.pool, [], []
    if extra := [name for name in addresses if name not in pool]:
        raise BadInput(f"--model {pool.shown(extra[0])}: not in the pool of {path}: {', '.join(pool.names)}")
    for model in pool:
        name, listed = model.name, table.find(model.name)
        price = given.get(name)
        if price is None and model.input_price is not None and model.output_price is not None:
            price = TokenPrice(model.input_price, model.output_price)
        if addresses.get(name) and price is not None:
            found.append(own_upstream(name, addresses[name], price, variables.get(name)))
        elif listed is not None and not addresses.get(name):
            found.append(listed_upstream(listed, price, variables.get(name), name))
        else:
            missing.append(f"--model {name}=http://HOST/v1" + ("" if price else f" --price {name}=INPUT/OUTPUT"))
    if missing:
        raise BadInput(f"{path}: models that are not in the table of prices need an address: add {' '.join(missing)}")
    return found


def _variables(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, _, variable = text.partition("=")
        if not name or not variable.isidentifier():
            raise BadInput("--key: expected NAME=VARIABLE, the name of an environment variable and not the key itself")
        found[name] = variable
    return found
