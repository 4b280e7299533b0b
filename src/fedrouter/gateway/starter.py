"""A first config for the gateway: commented YAML for some models, from the table of prices or from the user."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from fedrouter.data.prices import ListedModel, PriceTable, TokenPrice
from fedrouter.errors import BadInput
from fedrouter.gateway.config import ENVIRONMENT, Upstream, UpstreamParams
from fedrouter.prior import guess

_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?::[\w./-]+)*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
HEADER = """\
# The gateway's config. `fedrouter show FILE` validates it, `fedrouter serve --config FILE` runs it.
# docs/reference/gateway.md lists every field.
{prices}
routing:
  quality: {quality:g}              # of the best model's expected accuracy, as cheaply as possible
  # max_cost: 0.05           # US dollars that a request may be expected to cost
  # default_model: NAME      # serves when the router is unsure; default: the most expensive model
  {bundle}
{aliases}
server: {{host: 127.0.0.1, port: {port}}}
store: sqlite:///fedrouter.db   # the log: requests, costs, scores, API keys
keep_prompts: false             # true logs the text of prompts; embeddings are logged in any case

model_list:
"""


def listed_upstream(
    model: ListedModel, price: TokenPrice | None = None, key: str | None = None, name: str | None = None
) -> Upstream:
    """A model of the table of prices, at its provider; ``price``, ``key`` and ``name`` replace the table's."""
    provider = model.provider
    return Upstream(
        name=name or model.name,
        params=UpstreamParams(
            api_base=provider.api_base,
            model=model.name if name not in (None, model.name) else None,
            api_key=f"{ENVIRONMENT}{key or provider.key}",
            stream_usage=provider.stream_usage,
            api=frozenset(provider.api),  # type: ignore[arg-type]  # validated
        ),
        input_price=(price or model.price).input,
        output_price=(price or model.price).output,
        cached_input_price=None if price else model.cached_input,
        context=model.context,
        abilities=frozenset(model.abilities),  # type: ignore[arg-type]  # validated
    )


def own_upstream(name: str, api_base: str, price: TokenPrice, key: str | None = None) -> Upstream:
    """A model at an address of the user's own; ``key`` is the environment variable with its API key."""
    try:
        params = UpstreamParams(api_base=api_base, api_key=f"{ENVIRONMENT}{key}" if key else None)
        return Upstream(name=name, params=params, input_price=price.input, output_price=price.output)
    except ValidationError as error:
        raise BadInput(f"model {name!r}: {error.errors(include_url=False)[0]['msg']}") from None


def variables(models: Sequence[Upstream]) -> list[str]:
    """The environment variables that the models' API keys are read from."""
    keys = (params.api_key for model in models for params in (model.params, *model.deployments))
    return list(dict.fromkeys(key.removeprefix(ENVIRONMENT) for key in keys if key))


def starter_config(
    models: Sequence[Upstream],
    quality: float,
    port: int,
    table: PriceTable | None,
    bundle: str | None = None,
    aliases: Mapping[str, str] | None = None,
) -> str:
    """The config as commented YAML; ``table`` is where some of the prices come from, ``bundle`` the router's folder."""
    prices = ""
    if table is not None:
        prices = (
            f"#\n# Prices of {table.date}: {table.source}.\n# They change: compare them with the providers' pages.\n"
        )
    served = "# bundle: bundles/v1       # a router that you have; without one, the gateway learns its own"
    if bundle is not None:
        served = f"bundle: {_text(bundle)}   # the router, relative to this file"
    named = "".join(f"  {_text(alias)}: {_text(to)}\n" for alias, to in (aliases or {}).items())
    named = f"\naliases:\n{named}" if named else ""
    text = HEADER.format(quality=quality, port=port, prices=prices, bundle=served, aliases=named)
    return text + "\n".join(_entry(model) for model in models) + "\n"


def _entry(model: Upstream) -> str:
    lines = [f"  - model_name: {_text(model.name)}", "    params:", *_called(model.params, "      ")]
    if model.deployments:
        lines.append("    deployments:   # further places where it is called")
    for each in model.deployments:
        first, *more = _called(each, "        ")
        lines += [f"      - {first.strip()}", *more]
    lines.append(f"    input_price: {model.input_price:.12g}   # US dollars per million tokens")
    lines.append(f"    output_price: {model.output_price:.12g}")
    if model.cached_input_price is not None:
        lines.append(f"    cached_input_price: {model.cached_input_price:.12g}")
    if model.context is not None:
        lines.append(f"    context: {model.context}   # tokens")
    lines.append(f"    abilities: [{', '.join(sorted(model.abilities))}]")
    known = guess(model.target, TokenPrice(model.input_price, model.output_price))
    remark = f"its accuracy, until the router has learned; our guess: {known.source}"
    lines.append(f"    # quality: {known.accuracy:.2f}   # {remark}")
    return "\n".join(lines)


def _called(params: UpstreamParams, indent: str) -> list[str]:
    """Where and how a model is called."""
    lines = [f"api_base: {_text(params.api_base)}"]
    if params.model:
        lines.append(f"model: {_text(params.model)}   # its name there")
    if params.api_key:
        lines.append(f"api_key: {_text(params.api_key)}   # read from this environment variable")
    if params.api != {"chat"}:
        lines.append(f"api: [{', '.join(sorted(params.api))}]   # the APIs that it speaks")
    if not params.stream_usage:
        lines.append("stream_usage: false")
    return [indent + line for line in lines]


def _text(value: str) -> str:
    """Text as YAML: plain where it cannot be read as anything else, and otherwise as JSON, which YAML includes."""
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if plain else json.dumps(value)
