"""The client's side of a run: a connection to a SuperLink that receives questions and sends answers, in this process.

It takes the place of Flower's SuperNode, over the same requests, so it works with any SuperLink. It never downloads or
runs the app of a run, opens no port and starts no process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedrouter.engines.flower.http import MOST_BYTES, Caller, Disconnected, Rejected, at_most, open_client
from fedrouter.engines.flower.objects import (
    OVERHEAD,
    from_records,
    message_from,
    object_ids,
    objects_of,
    to_records,
    tree_of,
)
from fedrouter.engines.flower.run_app import app_digest
from fedrouter.engines.flower.version import check_flower
from fedrouter.errors import BadMessage, FedrouterError
from fedrouter.files import replace_file

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.proto.message_pb2 import ObjectTree

PATIENCE = 60.0
"""Seconds that a request is repeated while the SuperLink does not answer."""
HEARTBEAT_INTERVAL = 30.0
"""Seconds that this node promises between two heartbeats; it sends them in half that time."""
NOT_ACTIVATED = 2004
"""Flower's code when it does not activate a node: its key is not registered, or it counts as connected."""
UPLOAD_PAUSE = 0.05
"""Seconds before an object is asked for again that the server has announced and not uploaded yet."""
UPLOADS = 3
"""Attempts to upload an answer; a SuperLink that was restarted in between takes it in a new session."""
PARALLEL = 3
"""Requests at a time: the objects of one message, which over a long line would wait for each other."""


class NotAdmitted(FedrouterError):
    """The SuperLink does not know the client's key."""


class RunOver(FedrouterError):
    """The run of a message has ended."""


@dataclass(frozen=True)
class Incoming:
    """A message from the server: its run, the bytes of its questions, and when (Unix time) nobody waits any longer."""

    message: Message
    run: int
    content: bytes
    deadline: float


class NodeLink:
    """A client's connection; a context manager that signs in and out.

    Parameters
    ----------
    address, authority, key : of the SuperLink, its certificate authority's file, and the client's private key
    known_node : id of this client's node from an earlier connection, which may count as connected still: a process
        that was killed did not sign out
    unanswered : file with the message that is being answered; one that a killed process left is answered with an error,
        so that nobody waits for it
    wait : waits for so many seconds; True to give up at once
    on_change : called with False when the SuperLink does not answer, with True when it does again
    """

    def __init__(
        self,
        address: str,
        authority: Path,
        key: Path,
        known_node: int | None,
        unanswered: Path,
        wait: Callable[[float], bool],
        on_change: Callable[[bool], None],
    ) -> None:
        check_flower()
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        private = load_ssh_private_key(key.read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        public = private.public_key()
        self._public_key = public_key_to_bytes(public)
        interceptors = [RuntimeVersionHttpInterceptor("fedrouter"), NodeAuthHttpInterceptor(private, public)]
        self._client = open_client(FleetHttpClient, address, authority, interceptors)
        self._caller = Caller(PATIENCE, wait, on_change)
        self._wait, self._known_node, self._unanswered = wait, known_node, unanswered
        self._pool = ThreadPoolExecutor(PARALLEL)
        self._over = threading.Event()
        self._trusted: dict[int, bool] = {}

    def __enter__(self) -> Self:
        from flwr.proto.node_pb2 import Node

        try:
            self.node_id = self._activate()
            self._node = Node(node_id=self.node_id)
        except BaseException:
            self._close()
            raise
        threading.Thread(target=self._beat, daemon=True).start()
        self._answer_for_killed_process()
        return self

    def __exit__(self, *_: object) -> None:
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        self._over.set()
        with suppress(Exception):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self.node_id))
        self._close()

    def receive(self) -> Incoming | None:
        """The next message for this client, if there is one."""
        from flwr.common.serde import message_from_proto
        from flwr.proto.fleet_pb2 import PullMessagesRequest
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        answer = self._call(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not answer.messages_list:
            return None
        metadata = message_from_proto(answer.messages_list[0]).metadata
        replace_file(self._unanswered, answer.messages_list[0].SerializeToString())
        message = self._download(metadata.run_id, answer.message_object_trees[0])
        request = ConfirmMessageReceivedRequest(
            node=self._node, run_id=metadata.run_id, message_object_id=metadata.message_id
        )
        # Not waited for: if it is lost, the SuperLink forgets the message when the run ends.
        self._pool.submit(self._client.ConfirmMessageReceived, request)
        deadline = metadata.created_at + metadata.ttl
        return Incoming(message, metadata.run_id, from_records(message.content), deadline)

    def trusts(self, run: int) -> bool:
        """Whether a run names the app that this installation would build itself."""
        from flwr.proto.run_pb2 import GetRunRequest

        if run not in self._trusted:
            answer = self._call(self._client.GetRun, GetRunRequest(node=self._node, run_id=run))
            self._trusted[run] = answer.run.fab_hash == app_digest()
        return self._trusted[run]

    def send(self, incoming: Incoming, content: bytes, seconds: float = 0.0) -> None:
        """Send the answers to a message, which took so many seconds to make."""
        from flwr.app import Message as Reply

        self._send(Reply(to_records(content), reply_to=incoming.message), seconds)

    def refuse(self, incoming: Incoming, untrusted: bool) -> None:
        """Send an error instead of answers: the run is ``untrusted``, or the message could not be read."""
        from flwr.app import Error
        from flwr.app import Message as Reply
        from flwr.common.constant import ErrorCode

        code = ErrorCode.INVALID_FAB if untrusted else ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        self._send(Reply(Error(code, ""), reply_to=incoming.message), 0.0)

    def _answer_for_killed_process(self) -> None:
        """Send an error for the message that a process received and did not answer before it was killed."""
        from flwr.app import Error
        from flwr.app import Message as Reply
        from flwr.common.constant import ErrorCode
        from flwr.common.serde import message_from_proto
        from flwr.proto.message_pb2 import Message as Proto

        try:
            left = message_from_proto(Proto.FromString(self._unanswered.read_bytes()))
            self._unanswered.unlink()
        except Exception:  # none, or cut short: then somebody waits in vain, which ends by itself
            return
        if time.time() < left.metadata.created_at + left.metadata.ttl:
            with suppress(RunOver, Disconnected):
                self._send(Reply(Error(ErrorCode.CLIENT_APP_CRASHED, ""), reply_to=left), 0.0)

    def _activate(self) -> int:
        from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest

        request = ActivateNodeRequest(public_key=self._public_key, heartbeat_interval=HEARTBEAT_INTERVAL)
        try:
            return int(self._caller(self._client.ActivateNode, request).node_id)
        except Rejected as error:
            if error.code != NOT_ACTIVATED or self._known_node is None:
                raise NotAdmitted("not admitted") from None
        try:
            # Sign out the process that was killed: there is only one for a state directory, and it is this one.
            self._caller(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self._known_node))
            return int(self._caller(self._client.ActivateNode, request).node_id)
        except Rejected:
            raise NotAdmitted("not admitted") from None

    def _beat(self) -> None:
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_INTERVAL)
        while not self._over.wait(HEARTBEAT_INTERVAL / 2):
            # A missing answer is noticed by the next request for messages.
            with suppress(Exception):
                self._client.SendNodeHeartbeat(request)

    def _download(self, run: int, tree: ObjectTree) -> Message:
        identifiers = object_ids(tree)
        contents = list(self._pool.map(lambda identifier: self._object(run, identifier), identifiers))
        return message_from(tree.object_id, dict(zip(identifiers, contents, strict=True)))

    def _object(self, run: int, identifier: str) -> bytes:
        from flwr.proto.message_pb2 import PullObjectRequest

        request = PullObjectRequest(node=self._node, run_id=run, object_id=identifier)
        deadline = time.monotonic() + PATIENCE
        while True:
            with at_most(MOST_BYTES + OVERHEAD):
                answer = self._call(self._client.PullObject, request)
            if answer.object_available:
                return bytes(answer.object_content)
            if not answer.object_found or time.monotonic() > deadline or self._wait(UPLOAD_PAUSE):
                raise BadMessage("message: was not uploaded completely")

    def _send(self, reply: Message, seconds: float) -> None:
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import PushObjectRequest

        contents = objects_of(reply)
        request = PushMessagesRequest(
            node=self._node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[tree_of(reply)],
            clientapp_runtime_list=[seconds],
        )

        def upload(identifier: str) -> bool:
            request = PushObjectRequest(
                node=self._node,
                run_id=reply.metadata.run_id,
                object_id=identifier,
                object_content=contents[identifier],
                session_id=answer.session_id,
            )
            return bool(self._call(self._client.PushObject, request).stored)

        for _ in range(UPLOADS):
            answer = self._call(self._client.PushMessages, request)
            if all(self._pool.map(upload, answer.objects_to_push)):
                self._unanswered.unlink(missing_ok=True)
                return
        raise Disconnected("the coordinator did not take an answer")

    def _call(self, function: Callable[[Any], Any], request: Any) -> Any:
        try:
            return self._caller(function, request)
        except Rejected as error:
            if error.status == 403:
                raise RunOver("the run has ended") from None
            # As after the SuperLink lost its database: sign in anew.
            raise Disconnected(f"the coordinator refused a request ({error.status})") from None

    def _close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()
