"""The digest of what makes a measurement: data, protocol, settings, and the code that learns and measures.

A document that is found with another digest was made by something else, so it is measured again. Comments, docstrings
and formatting do not count as code.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import fedrouter

ROOMS = (
    "*.py",
    "data/partition.py",
    "data/read.py",
    "data/routerbench.py",
    "data/simulator.py",
    "data/sprout.py",
    "engines/local.py",
    "engines/simulated.py",
    "experiments/protocol.py",
    "federation/*.py",
    "federation/families/*.py",
    "federation/privacy/policy.py",
    "federation/verbs/*.py",
    "frontier/*.py",
    "routers/*.py",
)
"""The code that results depend on. An experiment's own file has the version of its measurement instead."""


def digest(what: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON object."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@cache
def code_digest() -> str:
    """SHA-256 of the code of :data:`ROOMS`, without comments and docstrings."""
    root = Path(fedrouter.__file__).parent
    found = hashlib.sha256()
    for path in sorted({path for room in ROOMS for path in root.glob(room)}):
        found.update(str(path.relative_to(root)).encode() + b"\0" + code_of(path.read_text()).encode() + b"\0")
    return found.hexdigest()


def code_of(source: str) -> str:
    """The syntax tree of a module as text, without docstrings; the same text with every version of Python."""
    tree = ast.parse(source)
    for node in _with_docstrings(tree):
        node.body = node.body[1:] or [ast.Pass()]
    return repr(_contents(tree))


def _contents(node: Any) -> Any:
    """A node as its name and its fields. Empty fields are left out: versions of Python differ in which there are."""
    if isinstance(node, list):
        return [_contents(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = {name: _contents(value) for name, value in ast.iter_fields(node) if value is not None and value != []}
    return type(node).__name__, fields


def _with_docstrings(tree: ast.Module) -> Iterator[Any]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            yield node
