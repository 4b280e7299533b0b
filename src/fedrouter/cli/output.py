"""How commands speak: one JSON document on stdout for machines, tables and bars for people, errors in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of a saved router.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]


class Voice:
    """Talks to a person, or with ``--json`` to a machine on stdout and to a person on stderr."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(stderr=as_json, highlight=False)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def warn(self, text: str) -> None:
        self.console.print("[bold yellow]warning[/]", text, soft_wrap=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
        table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
        for number, name in enumerate(header):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def next(self, *commands: str) -> None:
        """What to do now."""
        self.say("\n[bold]Next[/]")
        for command in commands:
            self.console.print(f"  {command}", soft_wrap=True, markup=False)

    def result(self, document: Any) -> None:
        if self.as_json:
            json.dump(document, sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")


class Bars:
    """Progress bars by name; a bar appears when it is first moved."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def move(self, name: str, done: float, total: float) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)


@contextmanager
def bars() -> Iterator[Bars]:
    """Bars on stderr, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield Bars(progress)
