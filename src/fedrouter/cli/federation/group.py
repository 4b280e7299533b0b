"""`fedrouter federation`: the group of commands."""

from __future__ import annotations

import typer

from fedrouter.cli.federation.audit import audit, verify
from fedrouter.cli.federation.join import approve, init, join
from fedrouter.cli.federation.processes import coordinator, member, stop
from fedrouter.cli.federation.run import run
from fedrouter.cli.federation.status import status

app = typer.Typer(help="A federation across machines: one router from everybody's logs.", no_args_is_help=True)
for command in (init, coordinator, join, approve, member, run, verify, status, audit, stop):
    app.command()(command)
