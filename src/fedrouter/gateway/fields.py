"""Fields of a YAML file, read with their line numbers, so that everything wrong with it can be said at once."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from fedrouter.errors import BadInput

ENVIRONMENT = "os.environ/"
"""How a secret is named: `os.environ/OPENAI_API_KEY` is the value of that environment variable."""


class Mark(Protocol):
    line: int


class Node(Protocol):
    start_mark: Any
    value: Any


@dataclass(frozen=True)
class Problem:
    """What is wrong in one place of the file."""

    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.field}: {self.message}" if self.field else f"line {self.line}: {self.message}"


class Fields:
    """One mapping of the file; every field is taken by name and kind, and what nobody took is a problem."""

    def __init__(self, node: Node | None, problems: list[Problem], path: str = "", line: int = 1) -> None:
        self._problems, self._path = problems, path
        self.line = line if node is None else node.start_mark.line + 1
        self._nodes: dict[str, Any] = {}
        self._taken: set[str] = set()
        for name, value in [] if node is None else node.value:
            key = str(name.value)
            if key in self._nodes:
                self.wrong(key, "given twice", name.start_mark.line + 1)
            self._nodes[key] = value

    def wrong(self, name: str, message: str, line: int | None = None) -> None:
        where = f"{self._path}.{name}" if self._path and name else self._path or name
        self._problems.append(Problem(line or self.line_of(name), where, message))

    def line_of(self, name: str) -> int:
        return int(self._nodes[name].start_mark.line) + 1 if name in self._nodes else self.line

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def text(self, name: str, default: str | None = None, required: bool = False) -> str:
        value = self._plain(name, required)
        if value is None:
            return default or ""
        if not isinstance(value, str) or not value.strip():
            self.wrong(name, f"expected text, got {value!r}")
            return default or ""
        return value

    def number(self, name: str, default: float, least: float = 0.0, most: float = math.inf) -> float:
        return self.optional_number(name, least, most, default) or 0.0

    def optional_number(
        self,
        name: str,
        least: float = 0.0,
        most: float = math.inf,
        default: float | None = None,
        required: bool = False,
    ) -> float | None:
        value = self._plain(name, required)
        if value is None:
            return default
        try:
            if isinstance(value, bool):
                raise ValueError
            found = float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not (math.isfinite(found) and least <= found <= most):
            span = f"of at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
            self.wrong(name, f"expected a number {span}, got {value!r}")
            return default
        return found

    def whole(self, name: str, default: int | None, least: int = 0) -> int | None:
        value = self._plain(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.wrong(name, f"expected a whole number of at least {least}, got {value!r}")
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._plain(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, f"expected true or false, got {value!r}")
            return default
        return value

    def words(self, name: str, among: Iterable[str], default: Iterable[str]) -> frozenset[str]:
        value, known = self._plain(name), tuple(among)
        if value is None:
            return frozenset(default)
        if not isinstance(value, list) or any(word not in known for word in value):
            self.wrong(name, f"expected a list of {', '.join(known)}, got {value!r}")
            return frozenset(default)
        return frozenset(value)

    def mapping(self, name: str) -> dict[str, str]:
        value = self._plain(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or any(isinstance(entry, dict | list) for entry in value.values()):
            self.wrong(name, "expected names with one value each")
            return {}
        return {str(key): str(entry) for key, entry in value.items()}

    def secret(self, name: str) -> str | None:
        """The value of the environment variable that the field names; what the field holds is never repeated."""
        value = self._plain(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.startswith(ENVIRONMENT) or value == ENVIRONMENT:
            self.wrong(name, f"a secret is never written here: put {ENVIRONMENT}NAME and set that variable")
            return None
        variable = value.removeprefix(ENVIRONMENT)
        if not os.environ.get(variable):
            self.wrong(name, f"the environment variable {variable} is not set")
            return None
        return os.environ[variable]

    def group(self, name: str) -> Fields:
        """A mapping inside this one; empty where the file has none."""
        self._taken.add(name)
        node = self._nodes.get(name)
        path = f"{self._path}.{name}" if self._path else name
        if node is not None and not _is_mapping(node):
            self.wrong(name, "expected fields with values")
            node = None
        return Fields(node, self._problems, path, self.line)

    def items(self, name: str) -> list[Fields]:
        """The mappings of a list."""
        self._taken.add(name)
        node = self._nodes.get(name)
        if node is None:
            return []
        found = []
        entries = node.value if type(node).__name__ == "SequenceNode" else None
        if entries is None:
            self.wrong(name, "expected a list")
        for place, entry in enumerate(entries or []):
            path = f"{self._path}.{name}[{place}]" if self._path else f"{name}[{place}]"
            if _is_mapping(entry):
                found.append(Fields(entry, self._problems, path))
            else:
                self._problems.append(Problem(entry.start_mark.line + 1, path, "expected fields with values"))
        return found

    def done(self) -> None:
        """Call when every known field was taken: the others are refused, with the nearest known name."""
        for name in self._nodes.keys() - self._taken:
            near = difflib.get_close_matches(name, self._taken, 1)
            known = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(self._taken))}"
            self.wrong(name, f"unknown field; {known}")

    def _plain(self, name: str, required: bool = False) -> Any:
        import yaml

        self._taken.add(name)
        if name not in self._nodes:
            if required:
                self.wrong(name, "is missing")
            return None
        constructor = yaml.constructor.SafeConstructor()
        try:
            return constructor.construct_object(self._nodes[name], deep=True)
        except yaml.YAMLError:
            self.wrong(name, "cannot be read")
            return None


def _is_mapping(node: Any) -> bool:
    return type(node).__name__ == "MappingNode"


def parse(text: str, problems: list[Problem]) -> Fields:
    """The top of a YAML file; where it is not YAML, the first place that is wrong."""
    try:
        import yaml
    except ImportError:
        from fedrouter.errors import MissingExtra

        raise MissingExtra("The gateway", "serve") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.append(Problem(mark.line + 1 if mark else 1, "", f"not YAML: {error.problem or error.context}"))
        node = None
    except yaml.YAMLError:
        problems.append(Problem(1, "", "not YAML: characters that may not be there"))
        node = None
    if node is not None and not _is_mapping(node):
        problems.append(Problem(1, "", "expected fields with values at the top"))
        node = None
    return Fields(node, problems)


class BadConfig(BadInput):
    """A config file with everything that is wrong in it, line by line."""

    def __init__(self, path: str, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.field))
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{path}: {len(problems)} thing{'s' * (len(problems) > 1)} wrong\n{lines}")
