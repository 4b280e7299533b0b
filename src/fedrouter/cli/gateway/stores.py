"""Options that commands on a store share: the store itself, and points in time."""

from __future__ import annotations

import math
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
    str,
    typer.Option("--store", metavar="URL|FILE", help="sqlite:///PATH, postgresql://…, or the gateway's config file."),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Start: a date (2026-01-31, UTC) or an age (7d, 12h).")
]


def open_store(store: str, *, create: bool = False) -> Store:
    """Open the store of a URL, or the one that a gateway's config names."""
    from fedrouter.store.store import Store

    return Store.open(store if "://" in store else _configured(Path(store)), create=create)


def moment(text: str | None, option: str) -> float | None:
    """Seconds since the epoch of a date and time, by default in UTC, or of an age such as 7d."""
    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if span:
        return time.time() - int(span[1]) * SPANS[span[2]]
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(f"{option}: expected a date like 2026-01-31 or an age like 30d, 12h, got {text!r}") from None


def deadline(text: str | None, option: str) -> float | None:
    """Seconds since the epoch of a date and time, or of a time from now such as 30d."""
    if text is not None and re.fullmatch(r"(\d{1,6})([mhdw])", text):
        return time.time() + seconds_of(text, option)
    return moment(text, option)


def seconds_of(text: str, option: str) -> float:
    """Seconds of a span such as 30m, 12h or 7d."""
    span = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if not span or not int(span[1]):
        raise BadInput(f"{option}: expected a time like 30m, 12h or 7d, got {text!r}")
    return int(span[1]) * SPANS[span[2]]


def shown_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def short_time(at: float) -> str:
    """For a narrow terminal: the time if that was today, otherwise the day."""
    found, today = datetime.fromtimestamp(at, UTC), datetime.now(UTC).date()
    return found.strftime("%H:%M:%S" if found.date() == today else "%Y-%m-%d")


def shown_day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%A, %Y-%m-%d")


def dollars(amount: float) -> str:
    """US dollars with four decimals, or as many as two digits of a small amount take.

    >>> dollars(1.5), dollars(0.0000123), dollars(0.0)
    ('1.5000', '0.000012', '0')
    """
    if not amount:
        return "0"
    decimals = max(4, 1 - math.floor(math.log10(abs(amount))))
    return f"{amount:,.{decimals}f}"


def plain(text: object) -> str:
    """Text of a client or user made safe for a terminal: no control characters, no markup."""
    return escape(
        "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(text))
    )


def _configured(path: Path) -> str:
    # Only the store is read, because the API keys of upstreams may not be in the environment.
    try:
        import yaml
    except ImportError:
        raise MissingExtra("reading gateway.yaml", "serve") from None
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({type(error).__name__})") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise BadInput(f"{path}: not YAML; `fedrouter show {path}` says where") from None
    store = found.get("store", DEFAULT) if isinstance(found, dict) else None
    if not isinstance(store, str):
        raise BadInput(f"{path}: field 'store': expected sqlite:///PATH or postgresql://…")
    return store
