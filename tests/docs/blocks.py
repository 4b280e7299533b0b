"""Code blocks of the documentation, and what the comment before a block says about running it.

A block of Python or shell runs as it stands, unless an HTML comment on the line before it says otherwise:

    <!-- skip: REASON -->            it is not run, for this reason
    <!-- slow -->                    it runs in the slow suite only
    <!-- tested by: tests/FILE.py -->  another test runs it
"""

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    PROJECT / "SECURITY.md",
    *sorted((PROJECT / "docs").rglob("*.md")),
]
RUN = {"python", "sh"}
SHOWN = {"text", "yaml", "json", "ini", "nginx", "toml", "mermaid"}
"""Languages of blocks that are shown and not run."""
FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str
    mark: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.mark in ("", "slow")

    @property
    def slow(self) -> bool:
        return self.mark == "slow"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order."""
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        found.append(Block(page, line, match["language"], code, match["mark"] or ""))
    return found
