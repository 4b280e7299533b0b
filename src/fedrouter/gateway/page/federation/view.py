"""What the page shows of a state directory: a coordinator's, or a client's."""

from __future__ import annotations

from typing import Any

from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory
from fedrouter.gateway.page.federation.client import client_view
from fedrouter.gateway.page.federation.coordinator import coordinator_view


def view_of(directory: CoordinatorDirectory | ClientDirectory) -> dict[str, Any]:
    """The view as JSON; its ``kind`` says whose directory it is."""
    return client_view(directory) if isinstance(directory, ClientDirectory) else coordinator_view(directory)
