"""What Flower's processes load in a run: the two sides of this package's app."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedrouter.deployment.client.local_client import client_of
from fedrouter.deployment.runs.server import perform_run
from fedrouter.deployment.state.config import check_name
from fedrouter.deployment.state.directories import open_coordinator
from fedrouter.engines.flower.client_app import make_client_app
from fedrouter.engines.flower.server_app import Connection, make_server_app

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp


def client_app() -> ClientApp:
    """The client side: answers as the client whose state directory the SuperNode was started with."""
    return make_client_app(lambda directory: client_of(Path(directory)))


def server_app() -> ServerApp:
    """The server side: performs the run that is named in its configuration."""
    return make_server_app(run_job)


def run_job(connection: Connection, run: str, flower_home: Path) -> None:
    # Flower's home is a folder in the coordinator's state directory, so no path of it travels with the run.
    perform_run(open_coordinator(flower_home.parent), check_name(run, "run"), connection)
