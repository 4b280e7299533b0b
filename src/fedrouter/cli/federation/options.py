"""Arguments and options that several commands of a coordinator share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CoordinatorPath = Annotated[Path, typer.Argument(metavar="DIR", help="The coordinator's state directory.")]
Quorum = Annotated[int, typer.Option("--quorum", min=1, help="Number of clients that must answer every request.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds that a request may take.")]
Wait = Annotated[
    float, typer.Option("--wait", min=0, help="Seconds to wait at the start for clients that are not connected.")
]
PlainSums = Annotated[
    bool,
    typer.Option("--plain", help="Show the coordinator each client's sums; by default it sees only their totals."),
]
