"""What is printed for a person: styles, and names that look like them."""

import pytest
from rich.markup import escape

from cli.command import run
from fedrouter.bundle import load
from fedrouter.cli.output import Voice, marked

NAMES = ["out[/]v1", "v[bold]2", "[/]", "[bold", "[x]", "[link=http://a]", "a\\[bold]", "\\\\[/]", "[red]y[/red]"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is(name, capsys):
    voice = Voice(False)
    voice.say(f"[bold]Bundle:[/] {escape(name)}")
    voice.say(f"[bold]{escape(name)}[/] of {escape(name)}")
    voice.warn(f"not in {escape(name)}")
    voice.table(["name"], [[escape(name)]])
    said = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in said] == [
        f"Bundle: {name}", f"{name} of {name}", f"warning not in {name}", "name", name,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["out[/]v1", "v[bold]2", "[/]", "[x]"])
def test_a_name_that_was_not_escaped_ends_no_command(name, capsys):
    Voice(False).say(f"[bold]Bundle:[/] {name}")
    Voice(False).table(["name"], [[name]])
    assert capsys.readouterr().out.split() == ["Bundle:", name, "name", name]


def test_styles_are_those_that_are_written():
    found = marked("[bold]Next[/] and [yellow]more[/] [dim]not this[/]")
    assert found.plain == "Next and more [dim]not this[/]"
    assert [(found.plain[span.start : span.end], span.style) for span in found.spans] == [
        ("Next", "bold"),
        ("more", "yellow"),
    ]


def test_a_folder_with_brackets_gets_its_router(tmp_path):
    log, out = tmp_path / "log[bold].csv", tmp_path / "out[/]v1"
    rows = [f"What is {number} plus 1?,{model},1,0.01" for number in range(9) for model in ("small", "large")]
    log.write_text("\n".join(["prompt,model,accuracy,cost", *rows]))
    done = run("learn", f"bank={log}", "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"Bundle: {out}, version 1" in done.stdout
    assert load(out).version == 1
