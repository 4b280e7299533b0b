"""The server's side of a run: this process takes the place of the one that Flower would start for the run's app.

It starts the run over the control API, claims its task with the secret that it shares with the SuperLink, and talks to
the clients through the runtime API. No process is started, and the run's app is not loaded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrouter.engines.flower.control import ControlClient
from fedrouter.engines.flower.http import MOST_BYTES, Caller, Disconnected, Rejected, at_most, open_client
from fedrouter.engines.flower.objects import (
    MESSAGE_TYPE,
    OVERHEAD,
    from_records,
    message_from,
    object_ids,
    objects_of,
    to_records,
    tree_of,
)
from fedrouter.engines.flower.run_app import build_app
from fedrouter.errors import BadMessage, FedrouterError

if TYPE_CHECKING:
    from flwr.proto.message_pb2 import Message as ProtoMessage
    from flwr.proto.message_pb2 import ObjectTree
    from flwr.supercore.runtime import RuntimeHttpClient

PATIENCE = 60.0
"""Seconds that a SuperLink may be gone, as while it is restarted; after them it gives up the run, too."""
CLAIM_TIMEOUT = 10.0
HEARTBEAT = 15.0
"""Seconds between two signs of life; a SuperLink gives up a run after 60 s without one."""
COMPLETED, FAILED = "completed", "failed"
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class RunLost(FedrouterError):
    """The SuperLink no longer knows the run; a new one continues from the checkpoint."""


@dataclass(frozen=True)
class Arrived:
    """What came back for a question: the bytes of the answers, or a reason why there are none."""

    message_id: str
    node: int
    content: bytes | None = None
    reason: str = ""


class RunLink:
    """A run on a SuperLink, and through it the clients' nodes."""

    def __init__(
        self, client: RuntimeHttpClient, run: int, task: int, on_change: Callable[[bool], None] = lambda connected: None
    ) -> None:
        from flwr.common.constant import SUPERLINK_NODE_ID
        from flwr.proto.node_pb2 import Node

        self._client, self._run, self._task = client, run, task
        self._node = Node(node_id=SUPERLINK_NODE_ID)
        self._caller = Caller(PATIENCE, _wait, on_change)
        self._arriving: dict[str, tuple[ProtoMessage, ObjectTree]] = {}

    def connected_nodes(self) -> set[int]:
        """Ids of the nodes that are connected now."""
        from flwr.proto.runtime_pb2 import GetNodesRequest

        return {int(node.node_id) for node in self._call(self._client.GetNodes, GetNodesRequest()).nodes}

    def push(self, content: bytes, nodes: Sequence[int], ttl: float) -> list[str]:
        """Send the same content to several nodes; the id of each message, empty where it was not accepted."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._push(content, nodes, ttl)
            except Disconnected:
                # New messages: whether the SuperLink has stored some of these is unknown, and it takes none twice.
                if time.monotonic() > deadline:
                    raise

    def pull(self, message_ids: Sequence[str], most: int) -> Iterator[Arrived]:
        """What has come back for these messages since the last call; an answer of more bytes is not downloaded.

        Each is downloaded when it is taken from the iterator.
        """
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest

        # A SuperLink announces a reply once, when its upload begins, and then knows nothing of it.
        expected = [message_id for message_id in message_ids if message_id not in self._arriving]
        if expected:
            answer = self._call(self._client.PullMessages, PullAppMessagesRequest(message_ids=expected))
            for proto, tree in zip(answer.messages_list, answer.message_object_trees, strict=True):
                self._arriving[proto.metadata.reply_to_message_id] = proto, tree
        for message_id in message_ids:
            if message_id in self._arriving:
                arrived = self._download(message_id, *self._arriving[message_id], most)
                if arrived is not None:
                    del self._arriving[message_id]
                    yield arrived

    def _call(self, function: Callable[[Any], Any], request: Any) -> Any:
        try:
            return self._caller(function, request)
        except Rejected as error:
            raise RunLost(f"the SuperLink no longer knows this run ({error.status})") from None

    def _push(self, content: bytes, nodes: Sequence[int], ttl: float) -> list[str]:
        from flwr.app import Metadata
        from flwr.app.message import make_message, remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.runtime_pb2 import PushAppMessagesRequest

        records, created = to_records(content), time.time()
        messages = [
            make_message(
                Metadata(self._run, "", self._node.node_id, node, "", "", created, ttl, MESSAGE_TYPE, self._task),
                records,
            )
            for node in nodes
        ]
        contents = {identifier: each for message in messages for identifier, each in objects_of(message).items()}
        request = PushAppMessagesRequest(
            messages_list=[message_to_proto(remove_content_from_message(message)) for message in messages],
            message_object_trees=[tree_of(message) for message in messages],
        )
        answer = self._call(self._client.PushMessages, request)
        for identifier in answer.objects_to_push:
            self._upload(identifier, contents[identifier], answer.session_id)
        return list(answer.message_ids)

    def _upload(self, identifier: str, content: bytes, session: str) -> None:
        from flwr.proto.message_pb2 import PushObjectRequest

        request = PushObjectRequest(
            node=self._node, run_id=self._run, object_id=identifier, object_content=content, session_id=session
        )
        if not self._call(self._client.PushObject, request).stored:
            raise Disconnected("the SuperLink did not take a message")

    def _download(self, message_id: str, proto: ProtoMessage, tree: ObjectTree, most: int) -> Arrived | None:
        """The reply, once its sender has uploaded all of it."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest

        node = int(proto.metadata.src_node_id)
        if proto.HasField("error"):
            return Arrived(message_id, node, reason=error_reason(proto.error.code))
        contents = {}
        try:
            for identifier in object_ids(tree):
                request = PullObjectRequest(node=self._node, run_id=self._run, object_id=identifier)
                with at_most(min(most, MOST_BYTES) + OVERHEAD):
                    answer = self._call(self._client.PullObject, request)
                if not answer.object_found:
                    raise BadMessage("no answer: it was not uploaded completely")
                if not answer.object_available:
                    return None
                contents[identifier] = answer.object_content
            content = from_records(message_from(tree.object_id, contents).content)
        except (BadMessage, ValueError) as error:
            reason = str(error) if isinstance(error, BadMessage) else "message: cannot be read"
            return Arrived(message_id, node, reason=reason)
        request = ConfirmMessageReceivedRequest(
            node=self._node, run_id=self._run, message_object_id=proto.metadata.message_id
        )
        self._call(self._client.ConfirmMessageReceived, request)
        return Arrived(message_id, node, content)


@contextmanager
def open_run(
    control: ControlClient, address: str, authority: Path, secret: bytes, on_change: Callable[[bool], None]
) -> Iterator[RunLink]:
    """Start a run to be performed by this process. Two processes must not start runs at the same moment.

    ``on_change`` is called with False when the SuperLink does not answer, with True when it does again.
    """
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest, SendTaskHeartbeatRequest

    run = control.start_run(build_app())
    task, token = _claim(address, authority, secret, run)
    over = threading.Event()
    with _runtime_client(address, authority, token=token) as client:

        def beat() -> None:
            while not over.wait(HEARTBEAT):
                # A missing answer is noticed by the next request.
                with suppress(Exception):
                    client.SendTaskHeartbeat(SendTaskHeartbeatRequest())

        status = FAILED
        try:
            client.PullTaskInput(PullTaskInputRequest())
            threading.Thread(target=beat, daemon=True).start()
            yield RunLink(client, run, task, on_change)
            status = COMPLETED
        finally:
            over.set()
            with suppress(Exception):
                client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _claim(address: str, authority: Path, secret: bytes, run: int) -> tuple[int, str]:
    """The task of a run and the token for it; tasks of runs whose process died before it had one are ended."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest
    from flwr.supercore.constant import TaskType

    deadline = time.monotonic() + CLAIM_TIMEOUT
    with _runtime_client(address, authority, secret=secret) as client:
        while time.monotonic() < deadline:
            answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            if answer.token and answer.task.run_id == run:
                return int(answer.task.task_id), answer.token
            if answer.token:
                with _runtime_client(address, authority, token=answer.token) as other, suppress(Exception):
                    other.PushTaskOutput(PushTaskOutputRequest(sub_status=FAILED, details=""))
            else:
                time.sleep(0.05)
    raise RunLost(f"the SuperLink did not start run {run}")


def _runtime_client(address: str, authority: Path, token: str = "", secret: bytes = b"") -> RuntimeHttpClient:
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.runtime import RuntimeHttpClient

    signing = (
        RuntimeTokenHttpInterceptor(token)
        if token
        else SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[ACQUIRE])
    )
    interceptors = [RuntimeVersionHttpInterceptor(component_name="fedrouter"), signing]
    return open_client(RuntimeHttpClient, address, authority, interceptors, proxies=False)


def error_reason(code: int) -> str:
    """Describe an error of the SuperLink, or one that a client sends in place of answers."""
    from flwr.common.constant import ErrorCode

    known = {
        ErrorCode.NODE_UNAVAILABLE: "not connected",
        ErrorCode.MESSAGE_UNAVAILABLE: "no answer in time",
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "no answer in time",
        ErrorCode.CLIENT_APP_RAISED_EXCEPTION: "could not read the questions",
        ErrorCode.CLIENT_APP_CRASHED: "was killed while it answered",
        ErrorCode.INVALID_FAB: "refused: the run's app is not the one of its own fedrouter",
    }
    return known.get(code, "no answer")
