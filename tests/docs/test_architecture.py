"""The page on the architecture agrees with the code: its tree, and every hop of its two walks."""

import ast
import re
import sys

import pytest

from docs.blocks import PROJECT

sys.path.insert(0, str(PROJECT / "scripts"))
import make_tree

PACKAGE = PROJECT / "src" / "fedrouter"
TEXT = make_tree.PAGE.read_text()
HOP = re.compile(r"^\| (\d*) ?\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
"""What stands in the place of a hop has no number."""


def walk(heading: str) -> list[tuple[str, str, str]]:
    section = re.search(rf"^## {heading}$(.*?)(?=^## )", TEXT, re.DOTALL | re.MULTILINE)[1]
    return HOP.findall(section)


def defined(source: str) -> set[str]:
    """Functions and classes of a module, and methods as Class.method."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


def test_the_tree_is_current():
    assert make_tree.page() == TEXT, "run `python scripts/make_tree.py`"


@pytest.mark.parametrize(("heading", "hops"), [("The path of an evaluation", 10), ("The path of a request", 15)])
def test_each_hop_of_a_walk_is_a_function_that_exists_and_none_is_visited_twice(heading, hops):
    found = walk(heading)
    files = {int(number): file for number, file, _ in found if number}
    assert len(files) >= hops
    assert list(files) == list(range(1, len(files) + 1))
    assert len(set(files.values())) == len(files)
    for _, file, name in found:
        assert name in defined((PACKAGE / file).read_text()), f"{file}: no {name}"


def test_files_named_on_the_page_exist():
    for name in set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", TEXT)):
        assert (PACKAGE / name).exists() or (PROJECT / name).exists(), name
