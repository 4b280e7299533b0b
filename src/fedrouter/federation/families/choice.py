"""The families that a command compares, and their settings, from what it was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fedrouter.errors import BadInput
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import FAMILIES, paper_settings

EVERY = "all"
Changes = Mapping[str, Mapping[str, Any]]
"""Values of ``--set FAMILY.SETTING=VALUE``, by family and setting."""
YES, NO = ("true", "yes", "1"), ("false", "no", "0")


def named_families(texts: Iterable[str]) -> tuple[str, ...]:
    """Families from the values of ``--router``, each of which may name several, separated by commas; or ``all``."""
    names = tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",")))
    if EVERY in names:
        return tuple(FAMILIES)
    for name in names:
        if name not in FAMILIES:
            raise BadInput(
                f"--router: expected {', '.join(FAMILIES)} or {EVERY}, got {name!r}; a family of another package needs "
                "that package to be installed"
            )
    return names


def chosen_settings(
    router: str | Sequence[str],
    rounds: int = 5,
    participation: float = 0.6,
    changes: Changes | None = None,
    paper: bool = False,
) -> dict[str, Settings]:
    """Settings by family; rounds and participation apply to every family that has them."""
    names = named_families([router] if isinstance(router, str) else router)
    if paper:
        changes = as_printed(names, changes or {})
    averaging = {"rounds": rounds, "participation": participation}
    FAMILIES["mlp"].settings().changed(**averaging)  # wrong values are refused, whether they are used or not

    def settings(name: str) -> Settings:
        return FAMILIES[name].settings().changed(**averaging).changed(**(changes or {}).get(name, {}))

    found = {name: settings(name) for name in names}
    refuse_unused(changes or {}, found)
    return found


def as_printed(names: Iterable[str], changes: Changes) -> Changes:
    """The changes that ``--paper`` stands for, and others on top: settings as printed where they differ."""
    found = {name: dict(each) for name, each in changes.items()}
    for name in names:
        default, printed = FAMILIES[name].settings().to_json(), paper_settings(name).to_json()
        differing = {setting: value for setting, value in printed.items() if value != default[setting]}
        if differing:
            found[name] = differing | found.get(name, {})
    return found


def read_changes(texts: Iterable[str]) -> Changes:
    """The values of ``--set FAMILY.SETTING=VALUE``; an unknown family or setting is an error that lists the known."""
    changes: dict[str, dict[str, Any]] = {}
    for text in texts:
        where, equals, value = text.partition("=")
        name, dot, setting = where.strip().partition(".")
        if not (equals and dot):
            raise BadInput(f"--set {text}: expected FAMILY.SETTING=VALUE, such as kmeans.k_global=40")
        if name not in FAMILIES:
            raise BadInput(f"--set {text}: expected a family of {', '.join(FAMILIES)}, got {name!r}")
        defaults = _settable(FAMILIES[name].settings())
        if setting not in defaults:
            known = f"{name} has {', '.join(defaults)}" if defaults else f"{name} has no settings"
            raise BadInput(f"--set {text}: no setting {setting!r}; {known}")
        changes.setdefault(name, {})[setting] = _parsed(text, value.strip(), defaults[setting])
    return changes


def refuse_unused(changes: Changes, settings: Mapping[str, Settings]) -> None:
    """Refuse changes of a family that is not compared."""
    for name in changes:
        if name not in settings:
            raise BadInput(f"--set {name}.…: {name} is not used here; --router chose {', '.join(settings)}")


def _settable(settings: Settings) -> dict[str, Any]:
    """The settings that a command line can express, with their defaults."""
    found = {part.name: getattr(settings, part.name) for part in fields(settings)}
    return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str | tuple)}


def _parsed(text: str, value: str, default: Any) -> Any:
    """A value of the same type as the default."""
    if isinstance(default, bool):
        if value.lower() not in YES + NO:
            raise BadInput(f"--set {text}: expected true or false, got {value!r}")
        return value.lower() in YES
    if isinstance(default, tuple):
        return tuple(_parsed(text, part.strip(), default[0] if default else "") for part in value.split(","))
    kind = type(default)
    try:
        return kind(value)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise BadInput(f"--set {text}: expected {what}, got {value!r}") from None
