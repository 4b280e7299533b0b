"""What one request wishes of the router: under ``fedrouter`` in its body, in headers, in its model name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrouter.gateway.http import Refusal, Request

SETTINGS = ("tradeoff", "dial", "allow", "max_price", "session", "task", "expected", "off", "explain")
LONGEST = 200
"""Characters of a name."""
MOST_GLOBS = 100
MOST = 1e12
"""The largest λ or price; beyond it sums lose their meaning."""


@dataclass(frozen=True)
class Wishes:
    """Settings of one request; ``model`` is one that it named."""

    tradeoff: float | None = None
    dial: float | None = None
    allow: tuple[str, ...] | None = None
    max_price: float | None = None
    session: str | None = None
    task: str | None = None
    expected: str | None = None
    off: bool = False
    explain: bool = False
    model: str | None = None


def read_wishes(request: Request, body: Mapping[str, Any], pool: Mapping[str, int], family: str | None) -> Wishes:
    """The wishes of a request; the body wins over headers, and both win over the λ in a model name."""
    found = _from_headers(request)
    inside = body.get("fedrouter")
    if inside is not None:
        if not isinstance(inside, dict):
            raise _wrong("fedrouter", "expected an object of settings")
        if unknown := sorted(set(inside) - set(SETTINGS)):
            raise _wrong("fedrouter", f"unknown setting {unknown[0][:40]!r}; there are {', '.join(SETTINGS)}")
        given = {name: value for name, value in inside.items() if value is not None}
        if {"tradeoff", "dial"} & set(given):  # one of them in the body takes the place of either in a header
            found = {name: value for name, value in found.items() if name not in ("tradeoff", "dial")}
        found |= {name: _checked(name, value) for name, value in given.items()}
    if "tradeoff" in found and "dial" in found:
        raise _wrong("fedrouter.dial", "give a tradeoff or a dial, not both")
    return Wishes(**(_from_model(body.get("model"), pool, family, found) | found))


def _from_headers(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for header, raw in request.headers.items():
        if not header.startswith(b"x-fedrouter-"):
            continue
        name, value = header[12:].decode("latin-1").replace("-", "_"), raw.decode("latin-1").strip()
        if name not in SETTINGS:
            raise _wrong(header.decode("latin-1"), f"unknown setting; there are {', '.join(SETTINGS)}")
        if name in ("tradeoff", "dial", "max_price"):
            try:
                found[name] = _checked(name, float(value))
            except ValueError:
                raise _wrong(header.decode("latin-1"), "expected a number") from None
        elif name == "allow":
            found[name] = _checked(name, [part.strip() for part in value.split(",") if part.strip()])
        elif name in ("off", "explain"):
            if value.lower() not in ("true", "false", "1", "0"):
                raise _wrong(header.decode("latin-1"), "expected true or false")
            found[name] = value.lower() in ("true", "1")
        else:
            found[name] = _checked(name, value)
    return found


def _checked(name: str, value: Any) -> Any:
    if name in ("tradeoff", "dial", "max_price"):
        most = 10.0 if name == "dial" else MOST
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not 0 <= number <= most:
            raise _wrong(f"fedrouter.{name}", f"expected a number from 0 to {most:g}")
        return number
    if name == "allow":
        globs = [value] if isinstance(value, str) else value
        if not isinstance(globs, list) or not 0 < len(globs) <= MOST_GLOBS or not all(map(_is_glob, globs)):
            raise _wrong("fedrouter.allow", "expected model names, which may have * and ? in them")
        return tuple(globs)
    if name in ("off", "explain"):
        if not isinstance(value, bool):
            raise _wrong(f"fedrouter.{name}", "expected true or false")
        return value
    if name == "expected":
        if not isinstance(value, str):
            raise _wrong("fedrouter.expected", "expected the text of a right answer")
        return value
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
        raise _wrong(f"fedrouter.{name}", f"expected text of at most {LONGEST} characters")
    return value


def _is_glob(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST


def _from_model(model: Any, pool: Mapping[str, int], family: str | None, found: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(model, str) or not model:
        raise _wrong("model", "expected 'auto', 'router-<family>-<λ>' or the name of a model")
    if model == "auto":
        return {}
    if model in pool:
        return {"model": model}
    if model.startswith("router-"):
        name, _, number = model.removeprefix("router-").partition("-")
        try:
            tradeoff = float(number)
        except ValueError:
            tradeoff = math.nan
        if name == family and 0 <= tradeoff <= MOST:
            return {} if "dial" in found else {"tradeoff": tradeoff}
        raise _wrong(
            "model", f"expected router-{family or '<family>'}-<λ> with λ from 0 to {MOST:g}", "model_not_found"
        )
    raise _wrong("model", "there is no such model here; GET /v1/models lists them", "model_not_found")


def _wrong(param: str, message: str, code: str = "invalid_value") -> Refusal:
    return Refusal(400, f"{param}: {message}.", code, param=param)
