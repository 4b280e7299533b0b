"""Options of one request: under ``fedrouter`` in its body, in ``x-fedrouter-*`` headers, or in its model name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError
from pydantic_core import PydanticCustomError

from fedrouter.gateway.http import HttpError

MAX_NAME = 200
"""Characters of a name."""
MAX_GLOBS = 100
MAX_NUMBER = 1e12
"""The largest λ or price; beyond it ``accuracy - λ · cost`` loses its precision."""
HEADER = b"x-fedrouter-"


def _printable(value: str) -> str:
    if not value.isprintable():
        raise PydanticCustomError("text", "not printable")
    return value


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value)


Number = Annotated[float, Field(strict=True, ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
Name = Annotated[StrictStr, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]
Glob = Annotated[StrictStr, Field(min_length=1, max_length=MAX_NAME)]
Globs = Annotated[Glob | Annotated[list[Glob], Field(min_length=1, max_length=MAX_GLOBS)], AfterValidator(_as_tuple)]


class RequestOptions(BaseModel):
    """Options of one request. The source of their validation, of the OpenAPI schema and of the table in the docs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tradeoff: Number | None = Field(default=None, description="λ, in accuracy per US dollar, instead of the config's.")
    dial: Annotated[Number, Field(le=10)] | None = Field(
        default=None, description="From 0 (cheapest) to 10 (best), instead of a tradeoff."
    )
    quality: Annotated[Number, Field(le=1)] | None = Field(
        default=None,
        description="Share of the best model's expected accuracy to keep on average, as cheaply as possible; "
        "instead of a tradeoff.",
    )
    latency: Number | None = Field(
        default=None, description="Accuracy that a second of waiting is worth, instead of the config's."
    )
    max_cost: Number | None = Field(
        default=None, description="US dollars; excludes models whose expected cost for this request is higher."
    )
    allow: Globs | None = Field(
        default=None, description="Names of the models that may answer; `*` and `?` are wildcards."
    )
    max_price: Number | None = Field(
        default=None, description="US dollars per million tokens; excludes models with a higher input or output price."
    )
    session: Name | None = Field(
        default=None, description="Name of the conversation; by default it is recognized by its first messages."
    )
    session_budget: Number | None = Field(
        default=None, description="US dollars that the requests of this conversation may cost together."
    )
    task: Name | None = Field(default=None, description="A label for the log.")
    expected: StrictStr | None = Field(default=None, description="The right answer, for the judge `exact_match`.")
    off: StrictBool | None = Field(default=False, description="Turn routing off: the default model serves.")
    explain: StrictBool | None = Field(
        default=False, description="Send the ranking of models in the header `x-fedrouter-ranking`."
    )


KNOBS = ("tradeoff", "dial", "quality")
"""Options that set λ; a request may set one of them."""
DEFAULTS = RequestOptions()
"""The options of a request that sets none."""
NAMES = tuple(RequestOptions.model_fields)
EXPECTED = {
    "tradeoff": f"expected a number from 0 to {MAX_NUMBER:g}",
    "dial": "expected a number from 0 to 10",
    "quality": "expected a number from 0 to 1",
    "max_cost": f"expected a number from 0 to {MAX_NUMBER:g}",
    "allow": "expected model names, which may contain * and ?",
    "max_price": f"expected a number from 0 to {MAX_NUMBER:g}",
    "session_budget": f"expected a number from 0 to {MAX_NUMBER:g}",
    "expected": "expected the text of a right answer",
    "off": "expected true or false",
    "explain": "expected true or false",
}
"""What to say about a wrong value; the other options are names."""


def read_options(
    headers: Mapping[bytes, bytes], inside: Any, model: Any, pool: Mapping[str, int], family: str | None
) -> tuple[RequestOptions, str | None]:
    """The options of a request, and the model of the pool that it names, if any.

    ``inside`` is what the body has under ``fedrouter`` and ``model`` its model. The body takes precedence over headers,
    and both over the λ in a model name.
    """
    found = _from_headers(headers)
    if inside is not None:
        if found:
            _validated(found)  # an invalid header is an error even if the body overrides it
        found = _merged(found, inside)
    options = _validated(found) if found else DEFAULTS  # most requests set none: nothing to validate
    if len(set_ := [name for name in KNOBS if getattr(options, name) is not None]) > 1:
        raise _invalid(f"fedrouter.{set_[1]}", f"set a {set_[0]} or a {set_[1]}, not both")
    if model == "auto":
        return options, None
    named = _named(model, pool)
    if named is None:
        tradeoff = _tradeoff_in_name(model, family)
        if not set_:
            options = options.model_copy(update={"tradeoff": tradeoff})
    return options, named


def _from_headers(headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for header, raw in headers.items():
        if not header.startswith(HEADER):
            continue
        shown, value = header.decode("latin-1"), raw.decode("latin-1").strip()
        name = shown[len(HEADER) :].replace("-", "_")
        if name not in NAMES:
            raise _invalid(shown, f"unknown option; expected one of {', '.join(NAMES)}")
        if name in (*KNOBS, "latency", "max_cost", "max_price", "session_budget"):
            try:
                found[name] = float(value)
            except ValueError:
                raise _invalid(shown, "expected a number") from None
        elif name == "allow":
            found[name] = [part.strip() for part in value.split(",") if part.strip()]
        elif name in ("off", "explain"):
            if value.lower() not in ("true", "false", "1", "0"):
                raise _invalid(shown, "expected true or false")
            found[name] = value.lower() in ("true", "1")
        else:
            found[name] = value
    return found


def _merged(found: dict[str, Any], inside: Any) -> dict[str, Any]:
    """Options from headers overridden by those from the body."""
    if not isinstance(inside, dict):
        raise _invalid("fedrouter", "expected an object with options")
    given = {name: value for name, value in inside.items() if value is not None or name not in NAMES}
    if not given.keys().isdisjoint(KNOBS):  # one of them in the body replaces any in headers
        found = {name: value for name, value in found.items() if name not in KNOBS}
    return found | given


def _validated(found: dict[str, Any]) -> RequestOptions:
    try:
        return RequestOptions.model_validate(found)
    except ValidationError as error:
        problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
        name = str(problems[0]["loc"][0])
        if problems[0]["type"] == "extra_forbidden":
            raise _invalid("fedrouter", f"unknown option {name[:40]!r}; expected one of {', '.join(NAMES)}") from None
        raise _invalid(
            f"fedrouter.{name}", EXPECTED.get(name, f"expected text of at most {MAX_NAME} characters")
        ) from None


def _named(model: Any, pool: Mapping[str, int]) -> str | None:
    """The model of the pool with this name; None for a name of the router itself, ``router-<family>-<λ>``."""
    if not isinstance(model, str) or not model:
        raise _invalid("model", "expected 'auto', 'router-<family>-<λ>' or the name of a model")
    if model in pool:
        return model
    if model.startswith("router-"):
        return None
    raise _invalid("model", "no such model; GET /v1/models lists them", "model_not_found", 404)


def _tradeoff_in_name(model: str, family: str | None) -> float:
    name, _, number = model.removeprefix("router-").partition("-")
    try:
        tradeoff = float(number)
    except ValueError:
        tradeoff = math.nan
    if name != family or not 0 <= tradeoff <= MAX_NUMBER:
        expected = f"expected router-{family or '<family>'}-<λ> with λ from 0 to {MAX_NUMBER:g}"
        raise _invalid("model", expected, "model_not_found", 404)
    return tradeoff


def _invalid(param: str, message: str, code: str = "invalid_value", status: int = 400) -> HttpError:
    return HttpError(status, f"{param}: {message}.", code, param=param)
