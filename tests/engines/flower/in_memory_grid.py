"""A Flower grid in one process: messages pass through the client's real handler and can be made to go wrong."""

from flwr.app import Error, Metadata
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedrouter.engines.flower.client_app import reply_to


def altered(message, content=None, error=None, **metadata):
    """A message with some of its metadata, or its content, replaced."""
    old = message.metadata
    names = ("run_id", "message_id", "src_node_id", "dst_node_id", "reply_to_message_id", "group_id", "created_at")
    values = {name: getattr(old, name) for name in (*names, "ttl", "message_type")} | metadata
    content = None if error else content or (message.content if message.has_content() else None)
    return make_message(Metadata(**values), content, error)


class InMemoryGrid(Grid):
    """``clients`` by node id; ``failures`` by node id, each a function of the reply that gives what arrives."""

    def __init__(self, clients, **failures):
        self.clients, self.failures, self.messages, self.asked, self.pushes = clients, {}, {}, [], 0
        self.failures = {int(name.removeprefix("node")): failure for name, failure in failures.items()}

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *parts): ...

    def send_and_receive(self, messages, *, timeout=None): ...

    def get_node_ids(self):
        return list(self.clients)

    def push_messages(self, messages):
        self.pushes += 1
        message_ids = []
        for message in messages:
            message_id = f"message-{len(self.messages)}"
            message = altered(message, message_id=message_id)
            self.messages[message_id] = message
            self.asked.append((message.metadata.dst_node_id, message.metadata.message_type))
            message_ids.append(message_id)
        return message_ids

    def pull_messages(self, message_ids):
        found = []
        for message_id in message_ids:
            message = self.messages.pop(message_id, None)
            if message is None:
                continue
            node = message.metadata.dst_node_id
            if node not in self.clients:
                # As the SuperLink reports a node that is gone: as its own message.
                error = Error(ErrorCode.NODE_UNAVAILABLE, "gone")
                found.append(altered(message, error=error, src_node_id=1, reply_to_message_id=message_id))
                continue
            reply = reply_to(message, lambda node=node: self.clients[node])
            found += self.failures.get(node, lambda reply: [reply])(reply)
        return found
