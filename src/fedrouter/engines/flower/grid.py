"""Messages of an epoch over Flower's grid: sent, sent again where no reply came, and collected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedrouter.engines.flower.client_relay import CONTENT, RECORD

POLL = 0.3
"""Seconds between two looks for replies."""
AGAIN = 60.0
"""Seconds after which a message is sent again. Members answer the same request with the same reply, from disk."""
AFTER_ERROR = 3.0
"""The same where a SuperNode says that its app failed, as it does while the member's process restarts."""
OFFLINE = 120.0
"""Seconds after which an exchange no longer waits for a member whose SuperNode is not connected."""
LOOK = 5.0
"""Seconds between two looks for who is connected."""


@dataclass
class _Asked:
    """A member that has not replied."""

    content: bytes
    node: int = 0
    """The id of its SuperNode once it is admitted: another one after the SuperLink has lost its database."""
    due: float = 0.0
    """When its message is sent, or sent again."""
    seen: float = field(default_factory=time.monotonic)
    """When its SuperNode was last connected."""


class GridLink:
    """Reaches members by name; ``nodes`` reads their node ids, which a member has once the SuperLink admits it."""

    def __init__(
        self, grid: Grid, nodes: Callable[[], Mapping[str, int]], offline: float = OFFLINE, again: float = AGAIN
    ) -> None:
        self._grid, self._nodes, self._offline, self._again = grid, nodes, offline, again

    def connected(self) -> set[str]:
        """The members whose SuperNodes are connected."""
        online = set(self._grid.get_node_ids())
        return {name for name, node in self._nodes().items() if node in online}

    def exchange(self, messages: Mapping[str, bytes], seconds: float, on_reply: Callable[[str, bytes], None]) -> None:
        """Send each member its message and hand over replies as they come, until all have come or the time is over."""
        deadline = time.monotonic() + seconds
        left = {name: _Asked(content) for name, content in messages.items()}
        sent: dict[str, str] = {}  # member by the id of a message
        looked = 0.0
        while left and (now := time.monotonic()) < deadline:
            if now - looked >= LOOK:
                looked, nodes, online = now, self._nodes(), set(self._grid.get_node_ids())
                for name, asked in left.items():
                    asked.node, before = nodes.get(name, 0), asked.node
                    asked.due = asked.due if asked.node == before else now
                    asked.seen = now if asked.node in online else asked.seen
                left = {name: asked for name, asked in left.items() if now - asked.seen <= self._offline}
            due = {name: asked for name, asked in left.items() if asked.node and asked.due <= now}
            self._send(due, deadline - now, sent)
            for message in self._grid.pull_messages([one for one, name in sent.items() if name in left]):
                name = sent.pop(message.metadata.reply_to_message_id, "")
                if name not in left:  # a second reply to a message that was sent twice
                    continue
                content = None if message.has_error() else _content(message)
                if content is None:
                    left[name].due = time.monotonic() + AFTER_ERROR
                else:
                    del left[name]
                    on_reply(name, content)
            time.sleep(POLL)

    def _send(self, due: Mapping[str, _Asked], seconds: float, sent: dict[str, str]) -> None:
        if not due:
            return
        messages = [
            Message(RecordDict({RECORD: ConfigRecord({CONTENT: asked.content})}), asked.node, "query", ttl=seconds)
            for asked in due.values()
        ]
        ids: list[str | None] = [*self._grid.push_messages(messages)]
        for (name, asked), message in zip(due.items(), ids or [None] * len(due), strict=True):
            asked.due = time.monotonic() + (self._again if message else AFTER_ERROR)
            if message:
                sent[message] = name


def _content(message: Message) -> bytes | None:
    """The bytes of a reply; None if it has another form, which another app than ours may have given it."""
    try:
        content = message.content[RECORD][CONTENT]
    except (KeyError, TypeError, ValueError):
        return None
    return content if isinstance(content, bytes) else None
