"""Output of commands: text, tables and progress bars for people, one JSON document on stdout for programs."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of a saved router.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, all else on stderr.")]

_STYLED = re.compile(r"(?<!\\)\[(?P<style>bold|yellow|bold yellow|bold red)\](?P<inside>.*?)(?<!\\)\[/\]", re.DOTALL)
_ESCAPED = re.compile(r"(\\+)(\[[a-z#/@][^[]*?])")
"""What `rich.markup.escape` makes of brackets."""
LINE_EVERY = 10.0
"""Seconds between two lines of progress where no bars can be drawn, and before the first."""


class Voice:
    """Prints for a person on stdout; with ``--json``, for a person on stderr and one JSON document on stdout."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(stderr=as_json, highlight=False)

    def say(self, text: str) -> None:
        self.console.print(marked(text), soft_wrap=True)

    def verdict(self, text: str, name: str = "Verdict") -> None:
        """Sentences on whether a router is worth having. Models are named in files, so they are escaped."""
        self.say(f"[bold]{name}:[/] {escape(text)}\n")

    def warn(self, text: str) -> None:
        self.console.print(marked(f"[bold yellow]warning[/] {text}"), soft_wrap=True)

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        title: str | None = None,
        wrapped: Sequence[str] = (),
    ) -> None:
        """Print a table; on a narrow terminal the ``wrapped`` columns take several lines, so that nothing is cut off.

        Unless told otherwise that is the first column, which has the names.
        """
        table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
        for number, name in enumerate(header):
            folds = name in (wrapped or header[:1])
            # A column that does not wrap keeps its width: rich would otherwise shorten it together with the others.
            width = None if folds else max([cell_len(name), *(marked(row[number]).cell_len for row in rows)])
            table.add_column(
                name,
                justify="right" if number and not folds else "left",
                no_wrap=not folds,
                overflow="fold",
                min_width=width,
            )
        for row in rows:
            table.add_row(*map(marked, row))
        self.console.print(table)

    def next(self, *commands: str) -> None:
        """Suggest the next commands, to be pasted: what a person has named in them must be :func:`quoted`."""
        self.say("\n[bold]Next[/]")
        for command in commands:
            self.console.print(f"  {command}", soft_wrap=True, markup=False)

    def result(self, document: Any) -> None:
        if self.as_json:
            json.dump(document, sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")


def quoted(*parts: object) -> str:
    """A word of a command that a shell reads as it is, whatever is in it.

    >>> print(quoted("my logs/$(date).csv"), quoted("bank=", Path("bank.csv")))
    'my logs/$(date).csv' bank=bank.csv
    """
    return shlex.quote("".join(map(str, parts)))


def marked(text: str) -> Text:
    """Text with rich's markup, of which only the styles that are used here count.

    Whatever else is in brackets is shown: it may be a part of a name, and no name of a file may end a command.

    >>> marked("[bold]Bundle:[/] runs[/]v1[old]").plain
    'Bundle: runs[/]v1[old]'
    """
    found, end = Text(), 0
    for part in _STYLED.finditer(text):
        found.append(_unescaped(text[end : part.start()])).append(_unescaped(part["inside"]), part["style"])
        end = part.end()
    return found.append(_unescaped(text[end:]))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\\" * (len(found[1]) // 2) + found[2], text)


def print_line(document: Any) -> None:
    """Print one line of JSON on stdout, for commands that print one whenever something is done."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


class Bars:
    """Progress bars by name; a bar appears with its first update. Where they cannot be drawn, a line now and then."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._said = time.monotonic()

    def move(self, name: str, done: float, total: float) -> None:
        if self._progress.disable:
            if time.monotonic() - self._said >= LINE_EVERY:
                self._said = time.monotonic()
                self._progress.console.print(f"{name}: {done / max(total, 1e-9):.0%}", markup=False, highlight=False)
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)


@contextmanager
def bars() -> Iterator[Bars]:
    """Progress bars on stderr; lines, if it is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield Bars(progress)
