"""Client of a SuperLink's control API: which keys it admits, which nodes are online, which runs there are."""

from __future__ import annotations

import hashlib
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedrouter.engines.flower.version import check_flower
from fedrouter.errors import BadInput, FedrouterError

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

Answer = TypeVar("Answer")
KEY_USED_BEFORE = "Public key already in use"
"""Part of the SuperLink's answer when a key that was removed is registered again."""


class Unreachable(FedrouterError):
    """The coordinator's SuperLink does not answer."""


@dataclass(frozen=True)
class Node:
    """A client's SuperNode as the SuperLink sees it.

    ``since``: when it went online or offline, in seconds since the epoch; None if it was never online.
    ``public_key``: PEM.
    """

    id: int
    online: bool
    since: float | None
    public_key: bytes


class ControlClient:
    """Talks to a SuperLink over TLS from the coordinator's own machine."""

    def __init__(self, address: str, authority: Path) -> None:
        self._address = address
        self._authority = authority

    def ready(self) -> bool:
        """Whether the SuperLink answers, with a certificate of the federation's authority."""
        context = ssl.create_default_context(cafile=str(self._authority))
        # No proxy: it is on this machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(f"https://{self._address}/health", timeout=3) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def register(self, public_key: bytes) -> int:
        """Admit a public key (PEM) and return the id of its node."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        return int(self._call(lambda client: client.RegisterNode(RegisterNodeRequest(public_key=public_key))).node_id)

    def unregister(self, node: int) -> None:
        """Stop admitting a node, permanently."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self._call(lambda client: client.UnregisterNode(UnregisterNodeRequest(node_id=node)))

    def nodes(self) -> list[Node]:
        """The nodes that are admitted."""
        from flwr.proto.control_pb2 import ListNodesRequest

        answer = self._call(lambda client: client.ListNodes(ListNodesRequest()))
        return [_node(info) for info in answer.nodes_info if info.status != "unregistered"]

    def start_run(self, app: bytes, **config: str) -> int:
        """Start a run of an app (a Flower app bundle) and return its id."""
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        fab = fab_to_proto(Fab(hashlib.sha256(app).hexdigest(), app, {}))
        request = StartRunRequest(fab=fab, override_config=user_config_to_proto({**config}), federation="")
        answer = self._call(lambda client: client.StartRun(request))
        if not answer.HasField("run_id"):
            raise FedrouterError(f"{self._address}: the SuperLink did not accept the run")
        return int(answer.run_id)

    def _call(self, request: Callable[[ControlHttpClient], Answer]) -> Answer:
        check_flower()
        import httpx
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor

        client = ControlHttpClient(
            f"https://{self._address}",
            interceptors=[RuntimeVersionHttpInterceptor(component_name="fedrouter")],
            verify=ssl.create_default_context(cafile=str(self._authority)),
        )
        try:
            with client:
                return request(client)
        except httpx.HTTPStatusError as error:
            if KEY_USED_BEFORE in error.response.text:
                raise BadInput(
                    "this key was removed from the roster before, and a SuperLink admits a key only once: "
                    "the client needs a new key (`fedrouter federation rekey`)"
                ) from None
            raise Unreachable(f"{self._address}: the SuperLink refused ({error.response.status_code})") from None
        except httpx.TransportError as error:
            raise Unreachable(
                f"{self._address}: the coordinator does not answer ({type(error).__name__}); "
                "start it with `fedrouter federation coordinator`"
            ) from None


def _node(info: Any) -> Node:
    online = info.status == "online"
    changed = info.last_activated_at if online else info.last_deactivated_at
    since = datetime.fromisoformat(changed).timestamp() if changed else None
    return Node(int(info.node_id), online, since, bytes(info.public_key))
