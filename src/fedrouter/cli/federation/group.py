"""`fedrouter federation`: the group of commands, and what replaced those of before."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from fedrouter.cli.federation.audit import audit, verify
from fedrouter.cli.federation.join import approve, init, join
from fedrouter.cli.federation.processes import coordinator, member, stop
from fedrouter.cli.federation.run import run
from fedrouter.cli.federation.status import status
from fedrouter.errors import BadInput

REMOVED = {
    "client": "`fedrouter federation join INVITATION --log FILE --dir DIR` makes a member, `member DIR` runs it",
    "enroll": "`fedrouter federation approve DIR REQUEST` admits a member",
    "unenroll": "`fedrouter federation approve DIR --remove NAME`",
    "rekey": "a member with a new key joins as a new member",
    "accept": "each member makes its own router, DIR/bundle; nobody votes",
    "reject": "each member makes its own router, DIR/bundle; nobody votes",
    "pull": "each member makes its own router, DIR/bundle; nothing is delivered",
}
"""Commands that were removed, and what to do instead."""


class Commands(TyperGroup):
    """Says of a command that was removed what replaced it."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in REMOVED:
            raise BadInput(f"federation {cmd_name}: removed; {REMOVED[cmd_name]}")
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=Commands, help="A federation across machines: one router from everybody's logs.", no_args_is_help=True
)
for command in (init, coordinator, join, approve, member, run, verify, status, audit, stop):
    app.command()(command)
