"""Which store a command means, and how a person names a time."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedrouter.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from fedrouter.store.store import Store

DEFAULT = "sqlite:///fedrouter.db"
SPANS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help=f"sqlite:///PATH or postgresql://…; default: the config's, or {DEFAULT}."),
]
ConfigPath = Annotated[Path | None, typer.Option("--config", help="The gateway's gateway.yaml, for its store.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="A date (2026-01-31, UTC) or a span back (7d, 12h).")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Likewise; not included.")]


def open_store(store: str | None, config: Path | None, *, create: bool = False) -> Store:
    """The store named by --store, else by the config, else the default one."""
    from fedrouter.store.store import Store

    return Store.open(store or (_configured(config) if config else DEFAULT), create=create)


def moment(text: str | None, option: str) -> float | None:
    """Seconds since the epoch for a date and time, UTC unless it says otherwise, or for a span back from now."""
    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if span:
        return time.time() - int(span[1]) * SPANS[span[2]]
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(f"{option}: expected a date like 2026-01-31 or a span like 30d, 12h, got {text!r}") from None


def shown_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def plain(text: object) -> str:
    """What a client or a user wrote, fit for a terminal: no control characters, no markup."""
    return escape("".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in str(text)))


def _configured(path: Path) -> str:
    # Only the store is read: this must work where the upstreams' keys are not in the environment.
    try:
        import yaml
    except ImportError:
        raise MissingExtra("reading gateway.yaml", "serve") from None
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({type(error).__name__})") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise BadInput(f"{path}: not YAML; `fedrouter serve --config {path} --check` says where") from None
    store = found.get("store", DEFAULT) if isinstance(found, dict) else None
    if not isinstance(store, str):
        raise BadInput(f"{path}: field 'store': expected sqlite:///PATH or postgresql://…")
    return store
