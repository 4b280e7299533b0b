"""GET, POST, PATCH and DELETE /v1/keys: create, list, change, expire and revoke API keys, for administrators.

The page has the same operations by way of the functions here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, json_object, send_response
from fedrouter.gateway.pipeline import admit, for_admins
from fedrouter.gateway.routes.endpoint import OBJECT, Endpoint
from fedrouter.store.keys import NUMBERS, SETTINGS, BadKey, LastAdmin
from fedrouter.store.records import Key

PATH = "/v1/keys"
BODY_LIMIT = 1 << 16
ID = re.compile("key-[0-9a-f]{12}")
"""Whatever else is asked for is no key, and some stores refuse to look for it."""


async def show(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    """All keys, without their tokens."""
    for_admins(await admit(gateway, request))
    found = await asyncio.to_thread(gateway.store.all_keys)
    await _reply(send, {"keys": [key.to_json() for key in found]})


async def create(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    for_admins(await admit(gateway, request))
    await _reply(send, await created(gateway, json_object(await request.body(BODY_LIMIT))))


async def edit(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    for_admins(await admit(gateway, request))
    changes = json_object(await request.body(BODY_LIMIT))
    await _reply(send, (await edited(gateway, request.id, changes)).to_json())


async def revoke(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    own = for_admins(await admit(gateway, request))
    await revoked(gateway, request.id, own)
    await _reply(send, {"id": request.id, "disabled": True})


async def created(gateway: Gateway, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Create a key: its id, and its token, which is never shown again. ``admin`` may be among the settings."""
    given = dict(settings)
    admin = given.pop("admin", False)
    if not isinstance(admin, bool | None):
        raise _invalid("admin", "expected true or false")
    _check_models(gateway, given)
    try:
        given = {"name": None} | given
        identity, token = await gateway.administer(lambda: gateway.store.create_key(**given, admin=bool(admin)))
    except BadKey as error:
        raise _invalid(error.field, error.expected) from None
    return {"id": identity, "token": token}


async def edited(gateway: Gateway, identity: str, changes: Mapping[str, Any]) -> Key:
    """Change a key; :class:`HttpError` 404 if no enabled key has this id."""
    _check_models(gateway, changes)
    if not ID.fullmatch(identity):
        raise _unknown()
    try:
        found = await gateway.administer(lambda: gateway.store.edit_key(identity, changes, keep_admin=True))
    except BadKey as error:
        raise _invalid(error.field, error.expected) from None
    except LastAdmin as error:
        raise _last_admin(error) from None
    if found is None:
        raise _unknown()
    return found


async def revoked(gateway: Gateway, identity: str, own: Key) -> None:
    """Disable a key for good; its log stays. Not the key that asks for it, lest nobody is left who can."""
    if identity == own.id:
        raise HttpError(409, "This is the key you are signed in with.", "own_key")
    if not ID.fullmatch(identity):
        raise _unknown()
    try:
        found = await gateway.administer(lambda: gateway.store.disable_key(identity, keep_admin=True))
    except LastAdmin as error:
        raise _last_admin(error) from None
    if not found:
        raise _unknown()


def _check_models(gateway: Gateway, settings: Mapping[str, Any]) -> None:
    """A pattern that fits no model is a slip, which would lock the key out."""
    patterns = settings.get("models")
    for pattern in patterns if isinstance(patterns, list) else ():
        if isinstance(pattern, str) and not any(fnmatchcase(name, pattern) for name in gateway.decider.names):
            raise _invalid("models", f"{pattern[:80]!r} fits none of {', '.join(gateway.decider.names)}")


async def _reply(send: Send, found: Any) -> None:
    await send_response(send, 200, orjson.dumps(found))


def _invalid(field: str, expected: str) -> HttpError:
    return HttpError(400, f"{field}: {expected}.", "invalid_value", param=field)


def _last_admin(error: LastAdmin) -> HttpError:
    return HttpError(409, f"{str(error).capitalize()}.", "last_admin")


def _unknown() -> HttpError:
    return HttpError(404, "No key that is enabled has this id.", "key_not_found")


def _schema(*required: str, **more: Any) -> dict[str, Any]:
    properties: dict[str, Any] = {
        name: {"type": ["number", "null"], "minimum": least, "maximum": most}
        for name, (least, most, _) in NUMBERS.items()
    }
    properties["name"] = {"type": "string", "minLength": 1}
    properties["rate_per_minute"] = {"type": ["integer", "null"], "minimum": 1}
    properties["models"] = {"type": ["array", "null"], "items": {"type": "string"}}
    assert properties.keys() == set(SETTINGS)
    return {
        "type": "object",
        "required": list(required),
        "properties": properties | more,
        "additionalProperties": False,
    }


_ID = ({"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},)
ENDPOINTS = (
    Endpoint(PATH, "GET", show, "All keys, without their tokens.", answer=OBJECT, errors=(403,)),
    Endpoint(
        PATH,
        "POST",
        create,
        "Create a key; its token is shown only here.",
        _schema("name", admin={"type": ["boolean", "null"]}),
        answer=OBJECT,
        errors=(403,),
    ),
    Endpoint(
        f"{PATH}/{{id}}",
        "PATCH",
        edit,
        "Change settings of a key; null removes one.",
        _schema(),
        answer=OBJECT,
        errors=(403, 404, 409),
        parameters=_ID,
    ),
    Endpoint(
        f"{PATH}/{{id}}",
        "DELETE",
        revoke,
        "Disable a key for good.",
        answer=OBJECT,
        errors=(403, 404, 409),
        parameters=_ID,
    ),
)
