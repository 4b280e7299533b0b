"""A client's side: fetches the bundle that the coordinator offers last, verifies it, and remembers which one it is.

Bundles are folders in ``bundles/`` of the client's state directory; ``bundles/accepted.json`` names the one to serve.
Nothing is executed or overwritten: a bundle is loaded before it is moved into place.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from fedrouter.bundle import load
from fedrouter.deployment.delivery.endpoint import FILES, PATH
from fedrouter.deployment.delivery.signature import sign
from fedrouter.deployment.state.config import check_name, split_address
from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.files import make_private_folder, new_folder

TIMEOUT = 30.0
OK = 200
MOST_BYTES = 1 << 30
"""Maximum size of one file."""
INTERVAL = 60.0
"""Seconds between two questions for an accepted bundle."""


class DeliveryFailed(FedrouterError):
    """The coordinator does not deliver: not reachable, or it does not know this client."""


def pull(directory: ClientDirectory) -> Path | None:
    """Fetch the bundle accepted last, unless it is here; its folder, or None if none was accepted yet."""
    offered = json.loads(_get(directory, PATH))
    if not offered:
        return None
    run, digest = check_name(str(offered[-1]["run"]), "run"), str(offered[-1]["digest"])
    make_private_folder(directory.bundles)
    # By digest: a coordinator that was set up anew starts to count its runs again.
    folder = directory.bundles / f"{run}-{digest.removeprefix('sha256:')[:12]}"
    if not folder.exists():
        with new_folder(folder) as arriving:
            for name in FILES:
                (arriving / name).write_bytes(_get(directory, f"{PATH}/{run}/{name}"))
            if load(arriving).manifest["digest"] != digest:
                raise BadInput(f"{run}: the bundle that arrived is not the one that was offered")
    directory.set_delivered({"bundle": str(folder), "run": run, "digest": digest})
    return folder


def admitted(directory: ClientDirectory) -> bool:
    """Whether the coordinator accepts this client's signature now. DeliveryFailed if it cannot be reached."""
    return _answer(directory, PATH)[0] == OK


def keep_pulling(directory: ClientDirectory, stopping: threading.Event, on_message: Callable[[str], None]) -> None:
    """Pull every minute until stopped; ``on_message`` hears of each new bundle, and once of a failure."""
    before, reported = directory.delivered(), ""
    while not stopping.wait(INTERVAL):
        try:
            pull(directory)
        except (FedrouterError, OSError, ValueError, LookupError, TypeError) as error:
            text = str(error) if isinstance(error, FedrouterError) else f"the bundle offered is not valid ({error!r})"
            if text != reported and not isinstance(error, DeliveryFailed):  # the connection itself says when it is lost
                on_message(text)
            reported = text
            continue
        now = directory.delivered()
        if now is not None and now != before:
            on_message(f"the accepted bundle is now {now['bundle']}")
        before, reported = now, ""


def _get(directory: ClientDirectory, path: str) -> bytes:
    """A file of the delivery, or DeliveryFailed."""
    coordinator = directory.config().coordinator
    status, content = _answer(directory, path)
    if status != OK:
        raise DeliveryFailed(
            f"{coordinator}: delivers nothing to this client ({status}); it is not enrolled, its clock "
            "is wrong, or the bundle was withdrawn"
        )
    if len(content) > MOST_BYTES:
        raise DeliveryFailed(f"{coordinator}: a file of the bundle is larger than {MOST_BYTES:,} bytes")
    return content


def _answer(directory: ClientDirectory, path: str) -> tuple[int, bytes]:
    """Status and content of a signed request."""
    config = directory.config()
    host, port = split_address(config.coordinator)
    context = ssl.create_default_context(cafile=str(directory.authority))
    connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)
    try:
        connection.request("GET", path, headers=sign(directory.key.read_bytes(), config.name, path))
        answer = connection.getresponse()
        content = answer.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise DeliveryFailed(f"{config.coordinator} cannot be reached ({type(error).__name__})") from None
    finally:
        connection.close()
    return answer.status, content
