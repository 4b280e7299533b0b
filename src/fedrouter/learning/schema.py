"""Whether a value fits a JSON schema: the keywords structured outputs use, and an honest "cannot say" beyond them.

Schemas come from whoever sends requests, so nothing here may run long: `pattern` is not looked at (a regular expression
can take for ever), references may not go in circles, and steps are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

MOST_STEPS = 20_000
NOTES = frozenset(
    [
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "format",
        "readOnly",
        "writeOnly",
        "deprecated",
    ]
)
"""Keywords that say nothing about what fits."""


class Undecided(Exception):
    """The schema asks for more than this can tell."""


def fits(value: Any, schema: Any) -> bool:
    """Whether a value, as JSON gives it, fits a schema; :class:`Undecided` where that cannot be told."""
    try:
        return _Checker(schema).fits(value, schema)
    except (RecursionError, TypeError, ValueError, OverflowError, AttributeError):
        raise Undecided from None  # a schema that goes in circles, or is none


class _Checker:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0

    def fits(self, value: Any, schema: Any) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Undecided
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise Undecided
        return all(self._holds(keyword, wanted, value, schema) for keyword, wanted in schema.items())

    def _holds(self, keyword: str, wanted: Any, value: Any, schema: Mapping[str, Any]) -> bool:
        if keyword in NOTES:
            return True
        if keyword == "$ref":
            return self.fits(value, self._referred(wanted))
        if keyword in ("anyOf", "allOf"):
            found = (self.fits(value, part) for part in wanted)
            return any(found) if keyword == "anyOf" else all(found)
        if keyword == "oneOf":
            return sum(self.fits(value, part) for part in wanted) == 1
        if keyword == "not":
            return not self.fits(value, wanted)
        if keyword in ("properties", "additionalProperties", "items"):
            return self._inside(keyword, wanted, value, schema)
        if keyword not in CHECKS:
            raise Undecided
        kinds, check = CHECKS[keyword]
        # A keyword about strings has nothing to say of a number.
        return not _is(value, kinds) or check(value, wanted)

    def _inside(self, keyword: str, wanted: Any, value: Any, schema: Mapping[str, Any]) -> bool:
        if keyword == "items":
            if "prefixItems" in schema:
                raise Undecided
            return not isinstance(value, list) or all(self.fits(item, wanted) for item in value)
        if not isinstance(value, dict):
            return True
        if keyword == "properties":
            return all(self.fits(value[name], part) for name, part in wanted.items() if name in value)
        if "patternProperties" in schema:
            raise Undecided
        named = schema.get("properties", {})
        return all(self.fits(value[name], wanted) for name in value if name not in named)

    def _referred(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise Undecided
        found = self._root
        for part in reference[1:].split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~"))
        if found is None:
            raise Undecided
        return found


TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: TYPES["number"](value) and value == int(value),
    "": lambda value: True,
}


def _is(value: Any, kinds: str | list[str]) -> bool:
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if any(kind not in TYPES for kind in kinds):
        raise Undecided
    return any(TYPES[kind](value) for kind in kinds)


def _equal(one: Any, other: Any) -> bool:
    """Equality of JSON, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(_equal(one[name], other[name]) for name in one)
    return bool(one == other)


CHECKS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "type": ("", _is),
    "enum": ("", lambda value, wanted: any(_equal(value, one) for one in wanted)),
    "const": ("", _equal),
    "required": ("object", lambda value, wanted: all(name in value for name in wanted)),
    "minProperties": ("object", lambda value, wanted: len(value) >= wanted),
    "maxProperties": ("object", lambda value, wanted: len(value) <= wanted),
    "minItems": ("array", lambda value, wanted: len(value) >= wanted),
    "maxItems": ("array", lambda value, wanted: len(value) <= wanted),
    "minLength": ("string", lambda value, wanted: len(value) >= wanted),
    "maxLength": ("string", lambda value, wanted: len(value) <= wanted),
    "minimum": ("number", lambda value, wanted: value >= wanted),
    "maximum": ("number", lambda value, wanted: value <= wanted),
    "exclusiveMinimum": ("number", lambda value, wanted: value > wanted),
    "exclusiveMaximum": ("number", lambda value, wanted: value < wanted),
    "multipleOf": ("number", lambda value, wanted: Fraction(str(value)) % Fraction(str(wanted)) == 0),
}
"""What each keyword is about ("" for any value), and whether a value has what it wants."""
