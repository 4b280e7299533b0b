"""Writes the tree of the source code into docs/architecture.md: `python scripts/make_tree.py`.

Each folder is described by the first sentence of its `__init__.py`, so the page cannot disagree with the code.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import wrap

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "architecture.md"
PACKAGE = PROJECT / "src" / "fedrouter"
BLOCK = re.compile(r"(?<=<!-- tree: begin -->\n).*?(?=<!-- tree: end -->)", re.DOTALL)
WIDTH = 110


def tree() -> str:
    """Every folder with its purpose, as a code block."""
    lines = []
    folders = [PACKAGE, *sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)]
    for folder in folders:
        depth = len(folder.relative_to(PACKAGE).parts)
        name = "src/fedrouter/" if folder == PACKAGE else f"{folder.relative_to(PACKAGE).as_posix()}/"
        indent = "  " * bool(depth)
        lines += wrapped(f"{indent}{name}  ", purpose(folder / "__init__.py"), f"{indent}      ")
    return "```text\n" + "\n".join(lines) + "\n```\n"


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.split("\n\n")[0].replace("\n", " ").rstrip(".")


def wrapped(first: str, text: str, rest: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest) if text else []


def page() -> str:
    """The page with the present tree."""
    return BLOCK.sub(lambda _: tree(), PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
