"""A Flower grid in one process, whose letters pass through the client's real handler and can be made to go astray."""

from flwr.app import Error, Metadata
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedrouter.deployment.flower_client import reply_to


def bent(message, content=None, error=None, **metadata):
    """A message with some of its metadata, or its content, exchanged."""
    old = message.metadata
    names = ("run_id", "message_id", "src_node_id", "dst_node_id", "reply_to_message_id", "group_id", "created_at")
    values = {name: getattr(old, name) for name in (*names, "ttl", "message_type")} | metadata
    content = None if error else content or (message.content if message.has_content() else None)
    return make_message(Metadata(**values), content, error)


class PostOffice(Grid):
    """``clients`` by node number; ``mishaps`` by node number, each a function of the reply that gives what arrives."""

    def __init__(self, clients, **mishaps):
        self.clients, self.mishaps, self.letters, self.asked = clients, {}, {}, []
        self.mishaps = {int(name.removeprefix("node")): mishap for name, mishap in mishaps.items()}

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *parts): ...

    def send_and_receive(self, messages, *, timeout=None): ...

    def get_node_ids(self):
        return list(self.clients)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = f"letter-{len(self.letters)}"
            message = bent(message, message_id=number)
            self.letters[number] = message
            self.asked.append((message.metadata.dst_node_id, message.metadata.message_type))
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids):
        found = []
        for number in message_ids:
            message = self.letters.pop(number, None)
            if message is None:
                continue
            node = message.metadata.dst_node_id
            if node not in self.clients:
                # As the SuperLink tells of a node that is gone: in its own name.
                error = Error(ErrorCode.NODE_UNAVAILABLE, "gone")
                found.append(bent(message, error=error, src_node_id=1, reply_to_message_id=number))
                continue
            reply = reply_to(message, lambda node=node: self.clients[node])
            found += self.mishaps.get(node, lambda reply: [reply])(reply)
        return found
