"""The command `fedrouter`: all commands and groups, and how errors are shown."""

from __future__ import annotations

import json
import sys

import click
import typer
import typer.core
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from fedrouter.cli.data import app as data
from fedrouter.cli.demo import demo
from fedrouter.cli.federation.group import app as federation
from fedrouter.cli.gateway.init import init
from fedrouter.cli.gateway.key import app as key
from fedrouter.cli.gateway.log import log
from fedrouter.cli.gateway.serve import bundle, serve
from fedrouter.cli.gateway.usage import usage
from fedrouter.cli.import_log import import_
from fedrouter.cli.reproduce import reproduce
from fedrouter.cli.router.evaluate import evaluate
from fedrouter.cli.router.learn import learn
from fedrouter.cli.router.route import route
from fedrouter.cli.router.show import show
from fedrouter.cli.simulate import simulate
from fedrouter.errors import BadInput, FedrouterError, MissingExtra

GONE = {
    "personalize": "fedrouter learn LOG --with BUNDLE --out DIR",
    "calibrate": "fedrouter evaluate BUNDLE LOG --max-cost or --min-accuracy",
    "coverage": "fedrouter show LOG, and the verdict of fedrouter learn",
    "model": "fedrouter learn LOG --with BUNDLE --out DIR",
    "client": "fedrouter learn LOG --with BUNDLE --out DIR, or --without LOG",
    "data import": "fedrouter import TOOL FILE --out LOG",
    "log show": "fedrouter log [ID]",
    "log export": "fedrouter log --out FILE",
    "log prune": "retention: {days: 90} in the gateway's config",
    "log drift": "fedrouter usage",
    "key disable": "fedrouter key revoke ID",
    "audit": "fedrouter federation audit DIR",
    "bundle show": "fedrouter show sqlite:///PATH",
}
"""Commands that were removed, and what replaced them."""


typer.core.HAS_RICH = False  # plain help fits a screen: boxes take twice the lines


class Commands(TyperGroup):
    """Commands; one that was removed says what replaced it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        for words in (args[:1], args[:2]):
            if " ".join(words) in GONE and not ctx.resilient_parsing:  # completion tells nobody
                raise BadInput(f"{' '.join(words)}: removed; use {GONE[' '.join(words)]}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    name="fedrouter",
    help="Learn one LLM router together from many private evaluation logs, without sharing a query.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    suggest_commands=False,  # click does
    pretty_exceptions_enable=False,
)
for command in (
    demo,
    learn,
    evaluate,
    route,
    show,
    import_,
    simulate,
    reproduce,
    init,
    serve,
    usage,
    log,
):
    app.command(command.__name__.rstrip("_"))(command)
for name, group in (
    ("data", data),
    ("key", key),
    ("bundle", bundle),
    ("federation", federation),
):
    app.add_typer(group, name=name)


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        import fedrouter

        print(fedrouter.__version__)
        raise typer.Exit


EXTRAS = dict.fromkeys(("pyarrow", "scipy", "sklearn", "threadpoolctl"), ("Reading tables and learning", "learn"))
EXTRAS |= {"flwr": ("A federation across machines", "flower"), "sqlalchemy": ("The evaluation log", "serve")}
"""What needs a package, and its extra, for packages that several rooms import where they need them."""


def main() -> None:
    """Run a command; an error that a user can fix is one line on stderr and exit status 2."""
    try:
        _run()
    except FedrouterError as error:
        Console(stderr=True, highlight=False).print("[bold red]error[/]", escape(str(error)), soft_wrap=True)
        if "--json" in sys.argv[1:]:
            print(json.dumps({"error": str(error)}))
        sys.exit(2)


def _run() -> None:
    try:
        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtra(*EXTRAS[package]) from None
