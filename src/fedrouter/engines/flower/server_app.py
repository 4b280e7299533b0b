"""The server side of a run on Flower: hands the connection to the clients to a function that does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedrouter.engines.flower.engine import FlowerFederation
from fedrouter.federation.middleware.validation import Report

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp


class Connection:
    """The clients' nodes that a run can reach."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def connected_nodes(self) -> set[int]:
        """Ids of the nodes that are connected now."""
        return set(self._grid.get_node_ids())

    def federation(self, members: Mapping[str, int], timeout: float, report: Report) -> FlowerFederation:
        """A federation of these clients, by name and node id."""
        return FlowerFederation(self._grid, members, timeout, report)


def make_server_app(perform: Callable[[Connection, str, Path], None]) -> ServerApp:
    """Flower's object for the server side; ``perform(connection, run, flower_home)`` does a run, given its name."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        perform(Connection(grid), str(context.run_config["run"]), Path(os.environ["FLWR_HOME"]))

    return app
