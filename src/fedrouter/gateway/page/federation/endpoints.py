"""The federation on a gateway's page: of the state directory that the bundle in service lies in, if it lies in one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrouter.errors import FedrouterError, MissingExtra
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page.endpoint import NUMBER, PageEndpoint, Visit, reply
from fedrouter.gateway.routing.bundles import ServedBundle

if TYPE_CHECKING:
    from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory

MARKS = ("client.json", "federation.json")
"""Files by which the state directory of a client or a coordinator is known."""


async def federation(gateway: Gateway, visit: Visit, send: Send) -> None:
    """What the state directory says; null if the bundle in service comes from no federation."""
    found = await asyncio.to_thread(_view, gateway)
    await reply(send, found or {"kind": None})


async def message(gateway: Gateway, visit: Visit, send: Send) -> None:
    await _entry(gateway, visit, send, "message")


async def question(gateway: Gateway, visit: Visit, send: Send) -> None:
    await _entry(gateway, visit, send, "question")


async def _entry(gateway: Gateway, visit: Visit, send: Send, kind: str) -> None:
    """One message or question of a client's journal, whole."""
    path = state_directory(gateway)
    if path is None or not NUMBER.fullmatch(visit.id):
        raise HttpError(404, "No such message.", "not_found")

    def read() -> dict[str, Any]:
        from fedrouter.deployment.state.directories import open_client
        from fedrouter.gateway.page.federation.client import journal_entry

        return journal_entry(open_client(path), kind, int(visit.id))

    try:
        found = await asyncio.to_thread(read)
    except FedrouterError as error:
        raise HttpError(404, f"{error}.", "not_found") from None
    await reply(send, found)


def state_directory(gateway: Gateway) -> Path | None:
    """The folder above the bundle in service that is the state directory of a client or a coordinator."""
    serving = gateway.bundles.current
    if not isinstance(serving, ServedBundle):
        return None
    above = serving.bundle.path.absolute().parents
    return next((folder for folder in list(above)[:4] if any((folder / mark).is_file() for mark in MARKS)), None)


def _view(gateway: Gateway) -> dict[str, Any] | None:
    path = state_directory(gateway)
    if path is None:
        return None
    try:
        from fedrouter.deployment.state.directories import open_directory
        from fedrouter.gateway.page.federation.view import view_of

        directory: CoordinatorDirectory | ClientDirectory = open_directory(path)
        return view_of(directory)
    except (FedrouterError, MissingExtra) as error:
        raise HttpError(409, f"{error}.", "not_readable") from None


ENDPOINTS = (
    PageEndpoint("federation", "GET", "admin", federation),
    PageEndpoint("message/", "GET", "admin", message),
    PageEndpoint("question/", "GET", "admin", question),
)
