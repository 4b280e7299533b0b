"""The command `fedrouter`: all commands and groups, and how errors are shown."""

from __future__ import annotations

import json
import sys

import typer
from rich.console import Console
from rich.markup import escape

from fedrouter.cli.data import app as data
from fedrouter.cli.federation.audit import audit
from fedrouter.cli.federation.manage import app as federation
from fedrouter.cli.gateway.init import init
from fedrouter.cli.gateway.key import app as key
from fedrouter.cli.gateway.log import app as log
from fedrouter.cli.gateway.serve import bundle, serve
from fedrouter.cli.gateway.usage import usage
from fedrouter.cli.reproduce import reproduce
from fedrouter.cli.router.calibrate import calibrate
from fedrouter.cli.router.coverage import coverage
from fedrouter.cli.router.evaluate import evaluate
from fedrouter.cli.router.grow import client, model
from fedrouter.cli.router.personalize import personalize
from fedrouter.cli.router.route import route
from fedrouter.cli.simulate import demo, simulate
from fedrouter.errors import FedrouterError, MissingExtra

app = typer.Typer(
    name="fedrouter",
    help="Learn one LLM router together from many private evaluation logs, without sharing a query.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    add_completion=False,
    suggest_commands=False,  # click does
    pretty_exceptions_enable=False,
)
for command in (
    demo,
    simulate,
    evaluate,
    calibrate,
    route,
    personalize,
    coverage,
    reproduce,
    init,
    serve,
    usage,
    audit,
):
    app.command()(command)
for name, group in (
    ("model", model),
    ("client", client),
    ("data", data),
    ("log", log),
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
EXTRAS["flwr"] = ("A federation across machines", "flower")
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
