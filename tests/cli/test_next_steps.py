"""The commands that commands suggest as next steps exist, with these options and with all that they require."""

import ast
import shlex
from pathlib import Path

import click
import pytest
import typer

from fedrouter.cli import main

FOLDER = Path(main.__file__).parent


def suggestions():
    """Every suggested command, as it stands in the source, with X for what is filled in."""
    for path in sorted(FOLDER.rglob("*.py")):
        found = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, (ast.JoinedStr, ast.Constant))
        ]
        inside = {part for node in found if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in found:
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
            if node not in inside and text.startswith("fedrouter "):
                yield text.partition("   (")[0]


@pytest.mark.parametrize("text", sorted(set(suggestions())))
def test_a_suggested_command_can_be_run(text):
    _, *words = shlex.split(text)
    command = typer.main.get_command(main.app)
    while isinstance(command, click.Group):
        name = words.pop(0)
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    options = {name: option for option in command.params for name in option.opts if isinstance(option, click.Option)}
    given = [word for word in words if word.startswith("--")]
    assert set(given) <= options.keys()
    required = {option for option in options.values() if option.required}
    assert required <= {options[word] for word in given}
