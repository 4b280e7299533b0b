"""A client for administration: sets the default tradeoff of a gateway that runs, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from fedrouter.errors import BadInput

SECONDS = 10.0


def set_tradeoff(address: str, key: str, tradeoff: float, bundle: str) -> dict[str, Any]:
    """Set λ of requests that set none; refused unless the gateway serves the bundle with this digest.

    Returns what the gateway answers: the tradeoff, and the bundle that it serves.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise BadInput(f"--gateway {address}: expected http(s)://host[:port]")
    request = urllib.request.Request(
        f"{address.rstrip('/').removesuffix('/v1')}/v1/tradeoff",
        json.dumps({"tradeoff": tradeoff, "bundle": bundle}).encode(),
        {"authorization": f"Bearer {key}", "content-type": "application/json"},
        method="PUT",
    )
    # No proxies of the environment and no redirects: the key goes to this address or nowhere.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=SECONDS) as response:
            found: dict[str, Any] = json.loads(response.read())
            return found
    except urllib.error.HTTPError as error:
        with error:
            raise BadInput(f"--gateway {address}: {_explained(error)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise BadInput(f"--gateway {address}: no gateway answers there ({reason})") from None


def _explained(error: urllib.error.HTTPError) -> str:
    known = {
        401: "it does not know the key in FEDROUTER_KEY",
        403: "the key in FEDROUTER_KEY is not an admin key; `fedrouter key create NAME --admin` makes one",
        404: "not a fedrouter gateway",
        409: "it serves another router; `fedrouter bundle use BUNDLE` puts this one into service",
    }
    try:
        said = str(json.loads(error.read(4096))["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        said = ""
    return known.get(error.code, f"it answered {error.code} {said}".strip())
