"""The registry of router families. Everything that lists families reads this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedrouter.errors import BadInput
from fedrouter.federation.families import auto, kmeans, linear, mf, mlp_growth, query_blind
from fedrouter.federation.families.family import Family, Settings

__all__ = ["FAMILIES", "Family", "Settings", "family", "settings_of"]

FAMILIES: Mapping[str, Family] = {
    entry.name: entry
    for entry in (
        kmeans.FAMILY,
        mlp_growth.FAMILY,
        linear.FAMILY,
        linear.KERNEL_FAMILY,
        mf.FAMILY,
        query_blind.FAMILY,
        auto.FAMILY,
    )
}

RENAMED = {"even_heads": "zero_init_heads", "smoothing": "ema_decay", "held_out": "validation_fraction"}
"""Settings that older bundles have under another name."""


def family(name: str) -> Family:
    try:
        return FAMILIES[name]
    except KeyError:
        raise BadInput(f"router {name!r}: expected one of {', '.join(FAMILIES)}") from None


def settings_of(name: str, hyperparameters: Mapping[str, Any], **changes: Any) -> Settings:
    """A family's settings as a bundle's manifest has them, some of them changed; what it has not is at its default."""
    kind = family(name).settings
    known = {part.name for part in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {
        RENAMED.get(key, key): tuple(value) if isinstance(value, list) else value
        for key, value in {**hyperparameters, **changes}.items()
        if RENAMED.get(key, key) in known
    }
    if kind is auto.AutoSettings:
        parts = values.get("settings", {})
        candidates = values.get("candidates", auto.AutoSettings().candidates)
        values["settings"] = {part: settings_of(part, parts.get(part, {}), **changes) for part in candidates}
    return kind(**values)
