"""The coordinator's word to its SuperLink: which keys it admits, which clients are there, which runs there are."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedrouter.deployment.credentials import public_key_pem
from fedrouter.deployment.homes import CoordinatorHome
from fedrouter.deployment.processes import need_flower
from fedrouter.errors import BadInput, FedrouterError

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

Answer = TypeVar("Answer")
ALREADY_KNOWN = "Public key already in use"


class Unreachable(FedrouterError):
    """The coordinator's SuperLink does not answer."""


@dataclass(frozen=True)
class Node:
    """One client's node as the SuperLink sees it.

    ``since`` when it is online or offline, in seconds since the epoch; None if it never was online.
    """

    number: int
    online: bool
    since: float | None
    public_key: bytes


@dataclass(frozen=True)
class FlowerRun:
    """A run as the SuperLink sees it."""

    number: int
    state: str
    began: str
    ended: str


class Control:
    """Speaks to the SuperLink of a coordinator's home, over TLS on its own machine."""

    def __init__(self, home: CoordinatorHome) -> None:
        self._address = home.charter().local_address
        self._authority = home.authority

    def ready(self) -> bool:
        """Whether the SuperLink answers, and by the federation's certificate."""
        return healthy(self._address, self._authority)

    def register(self, public_key: str) -> int:
        """Admit a key; Flower's number for its node."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        request = RegisterNodeRequest(public_key=public_key_pem(public_key))
        return int(self._ask(lambda client: client.RegisterNode(request)).node_id)

    def unregister(self, number: int) -> None:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self._ask(lambda client: client.UnregisterNode(UnregisterNodeRequest(node_id=number)))

    def nodes(self) -> list[Node]:
        """Those that are admitted now."""
        from flwr.proto.control_pb2 import ListNodesRequest

        answer = self._ask(lambda client: client.ListNodes(ListNodesRequest()))
        return [_node(one) for one in answer.nodes_info if one.status != "unregistered"]

    def runs(self) -> list[FlowerRun]:
        from flwr.proto.control_pb2 import ListRunsRequest

        answer = self._ask(lambda client: client.ListRuns(ListRunsRequest()))
        found = [_run(run) for run in answer.run_dict.values()]
        return sorted(found, key=lambda run: run.began, reverse=True)

    def _ask(self, question: Callable[[ControlHttpClient], Answer]) -> Answer:
        need_flower()
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
                return question(client)
        except httpx.HTTPStatusError as error:
            if ALREADY_KNOWN in error.response.text:
                raise BadInput(
                    "this key was taken off the roster before, and a SuperLink admits a key only once: "
                    "the client needs a new home with a new key (`fedrouter federation init`)"
                ) from None
            raise Unreachable(f"{self._address}: the SuperLink refused ({error.response.status_code})") from None
        except httpx.TransportError as error:
            raise Unreachable(
                f"{self._address}: the coordinator does not answer ({type(error).__name__}); "
                "`fedrouter federation coordinator` starts it"
            ) from None


def healthy(address: str, authority: Path) -> bool:
    context = ssl.create_default_context(cafile=str(authority))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(f"https://{address}/health", timeout=3) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _node(one: Any) -> Node:
    online = one.status == "online"
    changed = one.last_activated_at if online else one.last_deactivated_at
    since = datetime.fromisoformat(changed).timestamp() if changed else None
    return Node(int(one.node_id), online, since, bytes(one.public_key))


def _run(run: Any) -> FlowerRun:
    status = run.status
    state = ":".join(filter(None, (status.status, status.sub_status)))
    return FlowerRun(int(run.run_id), state, run.pending_at, run.finished_at)
