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


PLAIN = {"name", "client", "config.address", "ca", "entries[-1].number", "'' if evaluations else ' --log FILE'"}
"""What needs no quotes: names of clients, addresses and numbers, which are checked, and what has them already."""
KEPT = ("--seed", "--regions", "--protocol")
"""Commands with one of these are not suggested but kept, as what a result was made with."""


def filled_in():
    """What is filled into suggested commands, except numbers, and where."""
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            words = [part.value for part in getattr(node, "values", ()) if isinstance(part, ast.Constant)]
            if not isinstance(node, ast.JoinedStr) or not str(*words[:1]).startswith(("fedrouter ", "open ", "ls ")):
                continue
            if not any(option in word for option in KEPT for word in words):
                values = [part for part in node.values if isinstance(part, ast.FormattedValue) and not part.format_spec]
                yield from ((f"{path.name}:{node.lineno}", ast.unparse(part.value)) for part in values)


def test_what_a_person_has_named_is_quoted_in_a_suggested_command():
    assert [each for each in filled_in() if each[1] not in PLAIN and not each[1].startswith("quoted(")] == []


def test_a_suggested_command_can_be_pasted_whatever_its_files_are_called(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "it's $(touch harm); `touch harm`\n[bold]"
    folder.mkdir()
    config = folder / "my gateway.yaml"
    config.write_text(
        "routing: {default_model: m, baseline_model: m}\n"
        "model_list:\n"
        "  - {model_name: m, params: {api_base: 'http://127.0.0.1:9/v1'}, input_price: 0, output_price: 0}\n"
    )
    monkeypatch.setattr("sys.argv", ["fedrouter", "show", str(config)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code
    command = capsys.readouterr().out.partition("Next\n")[2]
    assert shlex.split(command) == ["fedrouter", "serve", "--config", str(config)]
