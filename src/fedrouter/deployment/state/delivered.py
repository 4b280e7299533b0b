"""Which bundle a client was told to serve: ``bundles/accepted.json`` in its state directory."""

from __future__ import annotations

import json
from typing import Any

from fedrouter.bundle import load
from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.errors import FedrouterError
from fedrouter.files import replace_file
from fedrouter.routers.base import Router

CURRENT = "accepted.json"


def current(directory: ClientDirectory) -> dict[str, Any] | None:
    """The folder, run and digest of the bundle to serve; None if none was delivered yet."""
    try:
        return dict(json.loads((directory.bundles / CURRENT).read_bytes()))
    except (OSError, ValueError):
        return None


def set_current(directory: ClientDirectory, entry: dict[str, Any]) -> None:
    """Record which bundle is to be served."""
    if current(directory) != entry:
        replace_file(directory.bundles / CURRENT, json.dumps(entry, indent=2).encode() + b"\n")


def served_router(directory: ClientDirectory) -> Router | None:
    """The router of that bundle; None if none was delivered yet, or it cannot be read any more."""
    entry = current(directory)
    try:
        return load(entry["bundle"]).router if entry else None
    except (FedrouterError, KeyError):
        return None
