"""Arguments that several commands of a federation share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CoordinatorPath = Annotated[Path, typer.Argument(metavar="DIR", help="The coordinator's state directory.")]
MemberPath = Annotated[Path, typer.Argument(metavar="DIR", help="A member's state directory.")]
DirectoryPath = Annotated[Path, typer.Argument(metavar="DIR", help="State directory of a coordinator or a member.")]
SupernodeUser = Annotated[
    str | None,
    typer.Option(
        "--supernode-user",
        metavar="USER",
        help="Start the SuperNode as this user, who can read nothing else; needs root.",
    ),
]
Relay = Annotated[
    Path | None,
    typer.Option(
        "--relay",
        metavar="DIR",
        help="Start no SuperNode; put the socket, token and node key for one that runs elsewhere here.",
    ),
]
