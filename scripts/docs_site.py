"""Pages of the documentation site that are made from other files: a hook that `mkdocs.yml` names.

The start page is README.md, the reference of commands comes from the commands themselves, that of messages from where
they are raised, and the page of examples from `examples/`. So each exists once, and the site cannot disagree with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
COPIED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "examples.md",
}
"""Files outside docs/ that are pages of the site, and under which name."""
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\(docs/(?P<target>[^)]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to those in docs/."""
    from mkdocs.structure.files import File

    for source, page in COPIED.items():
        text = linked((PROJECT / source).read_text(), Path(source).parent)
        if page == "examples.md":
            text += listings()
        files.append(File.generated(config, page, content=text))
    for page, content in GENERATED.items():
        files.append(File.generated(config, page, content=content()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point the links of a page in docs/ that leave the folder at the pages made from their targets."""
    return re.sub(
        r"\]\((?:\.\./)+(" + "|".join(map(re.escape, COPIED)) + r")(#[^)]*)?\)",
        lambda found: f"]({'../' * page.file.src_uri.count('/')}{COPIED[found[1]]}{found[2] or ''})",
        markdown,
    )


def linked(text: str, folder: Path) -> str:
    """A file's text with links as they are seen from the root of the site; sources are named, not linked."""

    def replaced(found: re.Match[str]) -> str:
        target, anchor = found["target"], found["anchor"] or ""
        if "://" in target:
            return found[0]
        path = (folder / target).as_posix()
        path = re.sub(r"^(?:[^/]+/)\.\./", "", path)
        if path in COPIED:
            return f"[{found['text']}]({COPIED[path]}{anchor})"
        if path.startswith("docs/"):
            return f"[{found['text']}]({path.removeprefix('docs/')}{anchor})"
        return found["text"]

    return LINK.sub(replaced, IMAGE.sub(r"![\g<text>](\g<target>)", text))


def listings() -> str:
    """Every example in full."""
    parts = []
    for path in sorted((PROJECT / "examples").glob("*.py")):
        parts.append(f"\n## {path.name}\n\n```python\n{path.read_text().strip()}\n```\n")
    return "".join(parts)


def command_reference() -> str:
    """The help of every command as one page."""
    import click
    from typer.main import get_command

    from fedrouter.cli.main import app

    parts = ["# Command line\n\nEvery command as `--help` shows it. Generated from the commands.\n"]

    def add(command: click.Command, name: str, depth: int) -> None:
        context = click.Context(command, info_name=name)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        parts.append(f"\n{'#' * min(depth, 4)} {name}\n\n{' '.join((command.help or '').split())}\n")
        if isinstance(command, click.Group):
            for part in command.list_commands(context):
                found = command.get_command(context, part)
                assert found is not None
                add(found, f"{name} {part}", depth + 1)
            return
        parts.append(f"\n```text\n{usage}\n```\n\n| option | meaning |\n|---|---|\n")
        for option in command.get_params(context):
            record = option.get_help_record(context)
            if isinstance(option, click.Argument):
                meaning = getattr(option, "help", None) or ""
                parts.append(f"| `{option.make_metavar(context)}` | {cell(meaning)} |\n")
            elif record is not None:
                parts.append(f"| `{cell(record[0])}` | {cell(record[1])} |\n")

    group = get_command(app)
    assert isinstance(group, click.Group)
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        add(command, f"fedrouter {name}", 2)
    return "".join(parts)


def cell(text: str) -> str:
    """Text that fits a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def message_reference() -> str:
    """Every error of the gateway as one page: its code, its status, and what it says."""
    found: dict[tuple[str, int], list[str]] = {}
    for path in sorted((PROJECT / "src/fedrouter/gateway").rglob("*.py")):
        for status, message, code in errors_of(ast.parse(path.read_text())):
            found.setdefault((code, status), []).append(message)
    lines = [
        "# Messages of the gateway",
        "",
        'Errors have OpenAI\'s shape: `{"error": {"message", "type", "param", "code"}}`. Generated from the code; “…” '
        "stands for what differs. An upstream's own refusal is passed on as it came.",
        "",
        "| code | status | message |",
        "|---|---|---|",
        *(
            f"| `{code}` | {status} | {cell(' / '.join(dict.fromkeys(messages)))} |"
            for (code, status), messages in sorted(found.items())
        ),
        "",
        "What `fedrouter learn` warns of is explained in [Your log](../log.md#what-the-warnings-mean).",
        "",
    ]
    return "\n".join(lines)


def errors_of(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Status, message and code of the errors that a module makes, where status and code stand there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "HttpError":
            match node.args[:3]:
                case [ast.Constant(int(status)), message, ast.Constant(str(code))]:
                    yield status, worded(message), code


def worded(message: ast.expr) -> str:
    """The text of a message; what is put into it, or comes from elsewhere, is left open."""
    match message:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(worded(value) for value in values)
    return "…"


GENERATED = {"reference/cli.md": command_reference, "reference/messages.md": message_reference}
"""Pages that are made from the code."""
