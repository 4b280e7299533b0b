"""Read the gateway's YAML file; report everything that is wrong with it at once, by line and field."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedrouter.errors import BadInput, MissingExtra
from fedrouter.gateway.config import Config

Location = tuple[int | str, ...]
GROUP = "expected fields with values"
TOO_DEEP = "values are nested too deeply, or an alias stands inside its own value"
MISSING = {
    "input_price": "is missing: a model without a price is refused; write 0 if it is free",
    "output_price": "is missing: a model without a price is refused; write 0 if it is free",
    "params": "is missing; expected at least api_base",
    "model_list": "expected at least one model",
}
"""Messages for required fields that need more than "is missing"."""


@dataclass(frozen=True)
class Problem:
    """One error in the file."""

    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.field}: {self.message}" if self.field else f"line {self.line}: {self.message}"


class BadConfig(BadInput):
    """A config file with everything that is wrong in it, by line."""

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.field))
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{path}: {len(problems)} problem{'s' * (len(problems) > 1)}\n{lines}")


def read_config(path: str | Path) -> Config:
    """The config in a YAML file; :class:`BadConfig` with every problem if it is not valid."""
    path = Path(path)
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{path}: cannot be read as text") from None
    document = Document(text)
    if not document.problems:
        context = {"folder": path.parent, "names": _model_names(document.data), "seen": set()}
        try:
            config = Config.model_validate(document.data, context=context, by_alias=True, by_name=False)
        except ValidationError as error:
            # A list whose entries are all invalid counts as too short as well: only an empty one is.
            errors = [
                each for each in error.errors(include_url=False) if each["type"] != "too_short" or not each["input"]
            ]
            document.problems += [document.explained(each) for each in errors]
        else:
            return config.replace(outbox=str(path.parent / Path(config.outbox).expanduser()))
    raise BadConfig(str(path), document.problems)


class Document:
    """A YAML file as plain data, with the line of every value."""

    def __init__(self, text: str) -> None:
        try:
            import yaml
        except ImportError:
            raise MissingExtra("The gateway", "serve") from None
        self.problems: list[Problem] = []
        self._lines: dict[Location, int] = {(): 1}
        self._constructor = yaml.constructor.SafeConstructor()
        self.data: Any = {}
        node = None
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._report(mark.line + 1 if mark else 1, (), f"not YAML: {error.problem or error.context}")
            return
        except yaml.YAMLError:
            self._report(1, (), "not YAML: contains characters that are not allowed")
            return
        except RecursionError:
            self._report(1, (), TOO_DEEP)
            return
        if node is not None and not isinstance(node, yaml.MappingNode):
            self._report(1, (), f"{GROUP} at the top")
            return
        self._errors, self._kinds = yaml.YAMLError, (yaml.MappingNode, yaml.SequenceNode)
        if node is not None:
            try:
                self.data = self._plain(node, ())
            except RecursionError:
                self._report(1, (), TOO_DEEP)

    def explained(self, error: Mapping[str, Any]) -> Problem:
        """A validation error of pydantic as a problem: at its line, with what was expected."""
        location: Location = tuple(error["loc"])
        if isinstance(location[-1], int) and "properties" not in schema_at(location):
            location = location[:-1]  # one word of a list: report the list
        name, schema = str(location[-1]), schema_at(location)
        if error["type"] == "problem":
            message = error["msg"]
            if name == "settings" and location not in self._lines:  # absent, so the judge's kind is wrong
                location = (*location[:-1], "kind")
        elif error["type"] == "missing":
            message = MISSING.get(name, "is missing")
        elif error["type"] == "too_short":
            message = MISSING["model_list"]
        elif error["type"] == "extra_forbidden":
            known = sorted(schema_at(location[:-1])["properties"])
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
            message = f"unknown field; {hint}"
        elif "properties" in schema:
            message = GROUP
        else:
            message = f"expected {expected(schema)}, got {error['input']!r}"
        return Problem(self._line(location), _shown(location), message)

    def _line(self, location: Location) -> int:
        while location not in self._lines:
            location = location[:-1]
        return self._lines[location]

    def _report(self, line: int, location: Location, message: str) -> None:
        self.problems.append(Problem(line, _shown(location), message))

    def _plain(self, node: Any, location: Location) -> Any:
        """A node as plain data; lines are noted on the way, and duplicate names reported."""
        mapping, sequence = self._kinds
        self._lines[location] = node.start_mark.line + 1
        if isinstance(node, sequence):
            return [self._plain(entry, (*location, index)) for index, entry in enumerate(node.value)]
        if isinstance(node, mapping):
            found: dict[str, Any] = {}
            for name, value in node.value:
                key = str(name.value)
                if key in found:
                    self._report(name.start_mark.line + 1, (*location, key), "given twice")
                found[key] = self._plain(value, (*location, key))
            return found
        try:
            return self._constructor.construct_object(node, deep=True)
        except (self._errors, ValueError):
            self._report(node.start_mark.line + 1, location, "cannot be read")
            return None


def _model_names(data: Any) -> list[str]:
    """Names in ``model_list``, for the checks of fields that refer to them."""
    entries = data.get("model_list") if isinstance(data, dict) else None
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [name for entry in entries if isinstance(name := entry.get("model_name"), str) and name]


def _shown(location: Location) -> str:
    """A location as people write it: `model_list[1].params.api_key`."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return shown.removeprefix(".")


@cache
def config_schema() -> dict[str, Any]:
    """The JSON Schema of the config."""
    return Config.model_json_schema()


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with its reference followed and the alternative null left out."""
    while "$ref" in schema or "anyOf" in schema:
        if "$ref" in schema:
            schema = config_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
        else:
            schema = next(part for part in schema["anyOf"] if part.get("type") != "null")
    return schema


def schema_at(location: Location) -> Mapping[str, Any]:
    """The schema of the field at a location; empty for an unknown one."""
    schema: Mapping[str, Any] = config_schema()
    for part in location:
        inside = schema.get("items", {}) if isinstance(part, int) else schema.get("properties", {}).get(part, {})
        schema = resolved(inside)
    return schema


def expected(schema: Mapping[str, Any]) -> str:
    """What a field takes, in words."""
    if "enum" in schema:
        return " or ".join(schema["enum"])
    if schema.get("type") == "array":
        words = resolved(schema["items"]).get("enum")
        return f"a list of {', '.join(words)}" if words else "a list"
    if schema.get("type") in ("number", "integer"):
        kind = "a number" if schema["type"] == "number" else "a whole number"
        if "maximum" in schema:
            return f"{kind} from {schema['minimum']:g} to {schema['maximum']:g}"
        return f"{kind} of at least {schema['minimum']:g}"
    return {"boolean": "true or false", "object": "names with one value each"}.get(str(schema.get("type")), "text")
