"""Which bundle a client was told to serve: ``bundles/accepted.json`` in its state directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
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


def remove_old(directory: ClientDirectory, before: float) -> int:
    """Remove bundles that arrived before a time (seconds since the epoch); their number.

    The one to serve stays, and the latest of the others, to go back to.
    """
    entry = current(directory)
    served = Path(entry["bundle"]).name if entry else ""
    arrived = sorted(
        (path for path in directory.bundles.glob("*/") if path.name != served), key=lambda path: path.stat().st_mtime
    )
    old = [path for path in arrived[:-1] if path.stat().st_mtime < before]
    for path in old:
        shutil.rmtree(path)
    return len(old)


def served_router(directory: ClientDirectory) -> Router | None:
    """The router of that bundle; None if none was delivered yet, or it cannot be read any more."""
    entry = current(directory)
    try:
        return load(entry["bundle"]).router if entry else None
    except (FedrouterError, KeyError):
        return None
