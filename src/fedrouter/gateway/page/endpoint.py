"""The record of one endpoint of the page: its path, its method, who may use it, and its handler."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, json_object, send_response
from fedrouter.store.records import Key

API = "/page/api/"
Access = Literal["anyone", "key", "admin"]
BODY_LIMIT = 1 << 16


@dataclass(frozen=True, eq=False)
class Visit:
    """One request of a signed-in browser; ``key`` is the key of its session."""

    request: HttpRequest
    key: Key

    @property
    def id(self) -> str:
        """The identifier in which the path ends."""
        return self.request.id

    @property
    def own(self) -> str | None:
        """The key whose data may be seen; None for an administrator, who sees everything."""
        return None if self.key.admin else self.key.id

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters; :class:`HttpError` 400 if one has a NUL character, which PostgreSQL cannot compare."""
        found = dict(parse_qsl(self.request.query.decode("latin-1")))
        if wrong := next((name for name, value in found.items() if "\0" in value), None):
            raise HttpError(400, f"{wrong[:40]}: expected text without NUL characters.", "invalid_value")
        return found

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number of the query within limits; :class:`HttpError` 400 if it is another."""
        return checked(self.query.get(name, default), name, low, high)

    async def body(self, *fields: str) -> dict[str, Any]:
        """The JSON object that was sent; :class:`HttpError` 400 if it is not one, or has other fields than these."""
        found = json_object(await self.request.body(BODY_LIMIT))
        if not found.keys() <= set(fields):  # not named: whatever was sent may be part of a prompt
            raise HttpError(400, f"Unknown field; expected {', '.join(fields) or 'none'}.", "invalid_value")
        return found


Handler = Callable[[Gateway, Visit, Send], Awaitable[None]]


@dataclass(frozen=True)
class PageEndpoint:
    """One endpoint below :data:`API`. A path ends in ``/`` if its last part is an identifier.

    ``access``: an endpoint for a ``key`` shows a plain key only what is its own; one for an ``admin`` refuses it.
    ``long``: the answer is streamed, so it does not count among the requests of a key at one time.
    """

    path: str
    method: str
    access: Access
    handle: Handler
    long: bool = False


def checked(value: Any, name: str, low: float, high: float) -> float:
    """A number within limits; :class:`HttpError` 400 if it is another, or none."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not low <= number <= high:
        raise HttpError(400, f"{name}: expected a number from {low:g} to {high:g}.", "invalid_value", param=name)
    return number


def text(value: Any, name: str, most: int) -> str:
    """Text of at least one and at most so many characters; :class:`HttpError` 400 if it is something else."""
    if not isinstance(value, str) or not 0 < len(value.strip()) <= most or "\0" in value:
        raise HttpError(400, f"{name}: expected text of at most {most} characters.", "invalid_value", param=name)
    return value.strip()


async def reply(send: Send, found: Any) -> None:
    """Answer with JSON."""
    await send_response(send, 200, orjson.dumps(found))
