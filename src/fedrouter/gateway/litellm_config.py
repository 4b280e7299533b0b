"""A LiteLLM proxy's config as models of this gateway: addresses, names of keys, prices, aliases.

What has no counterpart here is left out and named, never guessed; a key written in the file is not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedrouter.data.prices import PriceTable, TokenPrice
from fedrouter.errors import BadInput, MissingExtra
from fedrouter.gateway.config import ENVIRONMENT, Upstream, UpstreamParams

SERVERS = {
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "together_ai": ("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "fireworks_ai": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": ("http://localhost:11434", None),
    "ollama_chat": ("http://localhost:11434", None),
}
"""Addresses and variables of keys by LiteLLM's names of providers, besides those of the table of prices."""
SPOKEN = ("openai", "hosted_vllm", "custom_openai", "litellm_proxy", "lm_studio", *SERVERS)
"""Providers whose own `api_base` is an OpenAI-compatible API."""
ABILITIES = {"supports_function_calling": "tools", "supports_vision": "vision", "supports_response_schema": "json"}
READ = {"model_list", "router_settings"}


@dataclass(frozen=True)
class Imported:
    """The models and aliases of a LiteLLM config, and what was left out, in words."""

    models: list[Upstream]
    aliases: dict[str, str]
    left_out: list[str]


def read_litellm(path: Path, given: Mapping[str, TokenPrice], table: PriceTable) -> Imported:
    """Read a config; ``given`` prices take precedence over the file's, and these over the table's."""
    document = _yaml(path)
    entries = document.get("model_list")
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{path}, model_list: expected LiteLLM's list of models")
    found: dict[str, Upstream] = {}
    left_out, unpriced = [], []
    for number, entry in enumerate(entries):
        where = f"{path}, model_list[{number}]"
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        if not isinstance(params, dict) or not isinstance(entry.get("model_name"), str):
            raise BadInput(f"{where}: expected model_name and litellm_params")
        name, model, info = entry["model_name"], str(params.get("model", "")), entry.get("model_info") or {}
        if "*" in name or "*" in model:
            left_out.append(f"{name}: a wildcard names no model; add the models that you use with --model")
            continue
        called = _called(model, params, table)
        if called is None:
            left_out.append(f"{name}: {model} has no OpenAI-compatible API that is known; call it through LiteLLM")
            continue
        if isinstance(params.get("api_key"), str) and not params["api_key"].startswith(ENVIRONMENT):
            left_out.append(f"{name}: its key is written in {path.name}; put it into {called['api_key']} instead")
        price = given.get(name) or _price(params, info, model, table)
        if price is None:
            unpriced.append(name)
            continue
        listed, cached = table.find(model), info.get("cache_read_input_token_cost")
        fields: dict[str, Any] = {
            "context": info.get("max_input_tokens") or (listed.context if listed else None),
            "cached_input_price": 1e6 * cached if cached else listed.cached_input if listed else None,
            "abilities": frozenset(name for key, name in ABILITIES.items() if info.get(key)) or _abilities(listed),
        }
        try:
            upstream = UpstreamParams(**called)
            if name in found:
                before = found[name]
                found[name] = before.replace(deployments=(*before.deployments, upstream))
                continue
            fields = {field: value for field, value in fields.items() if value}
            found[name] = Upstream(
                name=name, params=upstream, input_price=price.input, output_price=price.output, **fields
            )
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise BadInput(f"{where}, {problem['loc'][-1]}: {problem['msg']}") from None
    if unpriced:
        flags = " ".join(f"--price {name}=INPUT/OUTPUT" for name in dict.fromkeys(unpriced))
        raise BadInput(f"{path}: no price of {', '.join(dict.fromkeys(unpriced))}; add {flags} (0/0 if it is free)")
    if not found:
        raise BadInput(f"{path}: no model that can be called here; {'; '.join(left_out)}")
    aliases = (document.get("router_settings") or {}).get("model_group_alias") or {}
    kept = {str(alias): to for alias, to in aliases.items() if isinstance(to, str) and to in found}
    left_out += [f"{section}: not read" for section in document if section not in READ]
    return Imported(list(found.values()), kept, left_out)


def _called(model: str, params: Mapping[str, Any], table: PriceTable) -> dict[str, Any] | None:
    """Where and how a model is called; None if its provider speaks no OpenAI-compatible API that is known here."""
    provider, slash, name = model.partition("/")
    if not slash:
        provider, name = "openai", model
    base, key = params.get("api_base"), params.get("api_key")
    written = isinstance(key, str) and not key.startswith(ENVIRONMENT)
    key = f"{ENVIRONMENT}{provider.upper()}_API_KEY" if written else key
    if provider == "azure":
        base, key = f"{str(base).rstrip('/')}/openai/v1", key or f"{ENVIRONMENT}AZURE_API_KEY"
        return {"api_base": base, "model": name, "api_key": key}
    listed = {each.provider.key: each.provider for each in table.models.values()}
    found = listed.get(f"{provider.upper()}_API_KEY")
    if base is None and found is not None:
        called = {"api_base": found.api_base, "api": frozenset(found.api), "stream_usage": found.stream_usage}
        return called | {"model": name, "api_key": key or f"{ENVIRONMENT}{found.key}"}
    if base is None and provider in SERVERS:
        base, variable = SERVERS[provider]
        key = key or (f"{ENVIRONMENT}{variable}" if variable else None)
    if base is None or provider not in SPOKEN:
        return None
    base = f"{str(base).rstrip('/')}/v1" if provider.startswith("ollama") else base
    return {"api_base": base, "model": name, "api_key": key}


def _price(params: Mapping[str, Any], info: Mapping[str, Any], model: str, table: PriceTable) -> TokenPrice | None:
    for source in (params, info):
        prices = source.get("input_cost_per_token"), source.get("output_cost_per_token")
        if all(isinstance(price, int | float) for price in prices):
            return TokenPrice(*(1e6 * float(price) for price in prices))  # type: ignore[arg-type]  # looked at above
    listed = table.find(str(info.get("base_model") or model))
    return None if listed is None else listed.price


def _abilities(listed: Any) -> frozenset[str]:
    return frozenset() if listed is None else frozenset(listed.abilities)


def _yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("The gateway", "serve") from None
    try:
        document = yaml.safe_load(path.read_text())
    except OSError:
        raise BadInput(f"{path}: no such file, or it cannot be read") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise BadInput(f"{path}: not YAML") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path}: expected a LiteLLM config, with model_list")
    return document
