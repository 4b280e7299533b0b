"""Counts what people read and type: words of the pages, commands and their options, lines of README and CHANGELOG.

    python scripts/check_size.py [--words]     # with the words of each page

Ends with status 1 if a count is above its limit. A count that is still above its target has today's number as limit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"


@dataclass(frozen=True)
class Limit:
    """The most that is allowed today, and the most that is wanted where that is less."""

    most: int
    target: int | None = None


LIMITS = {
    "words of all pages in docs": Limit(30_000),
    "words of docs/results": Limit(8_000),
    "lines of README": Limit(150),
    "lines of CHANGELOG": Limit(60),
    "commands": Limit(30),
    "options": Limit(120),
    "lines of the longest --help": Limit(40),
}


def words() -> dict[str, int]:
    """Words of each page, as `wc -w` counts them."""
    pages = sorted(DOCS.rglob("*.md"))
    return {page.relative_to(DOCS).as_posix(): len(page.read_text().split()) for page in pages}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that `--help` lists, with its full name."""
    from typer.main import get_command

    from fedrouter.cli.main import app

    def below(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield name, command
            return
        for word in command.list_commands(click.Context(command)):
            part = command.get_command(click.Context(command), word)
            if part is not None and not part.hidden:
                yield from below(part, f"{name} {word}")

    return below(get_command(app), "fedrouter")


def options(command: click.Command) -> list[str]:
    """The options of a command beside --help and --json, which every command has."""
    names = [part.opts[0] for part in command.params if isinstance(part, click.Option)]
    return [name for name in names if name not in ("--help", "--json")]


def help_lines() -> dict[str, int]:
    """Lines of each command's help on a terminal of 80 columns."""
    from typer.testing import CliRunner

    from fedrouter.cli.main import app

    def shown(name: str) -> int:
        result = CliRunner().invoke(app, [*name.split()[1:], "--help"], env={"COLUMNS": "80"}, terminal_width=80)
        return len(result.output.rstrip().splitlines())

    return {name: shown(name) for name, _ in commands()}


def counts() -> dict[str, int]:
    """What is limited."""
    found, every = words(), dict(commands())
    return {
        "words of all pages in docs": sum(found.values()),
        "words of docs/results": sum(count for page, count in found.items() if page.startswith("results/")),
        "lines of README": len((PROJECT / "README.md").read_text().splitlines()),
        "lines of CHANGELOG": len((PROJECT / "CHANGELOG.md").read_text().splitlines()),
        "commands": len(every),
        "options": sum(len(options(command)) for command in every.values()),
        "lines of the longest --help": max(help_lines().values()),
    }


def above(found: dict[str, int]) -> list[str]:
    """One line for each count above its limit."""
    limits = {name: LIMITS[name].most for name in found}
    return [f"{name}: {count:,}, at most {limits[name]:,}" for name, count in found.items() if count > limits[name]]


def main() -> None:
    if "--words" in sys.argv[1:]:
        for page, count in sorted(words().items(), key=lambda entry: -entry[1]):
            print(f"{count:7,}  {page}")
        for name, command in commands():
            print(f"{len(options(command)):7}  {name} {' '.join(options(command))}")
    found = counts()
    for name, count in found.items():
        limit = LIMITS[name]
        wanted = f", wanted {limit.target:,}" if limit.target is not None else ""
        print(f"{count:7,}  {name} (at most {limit.most:,}{wanted})")
    if wrong := above(found):
        sys.exit("\n".join(["", *wrong]))


if __name__ == "__main__":
    main()
