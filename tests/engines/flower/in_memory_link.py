"""A run's link in one process: questions go to the client's real code, and what comes back can be made to go wrong."""

from fedrouter.engines.flower.answering import answer_exchange
from fedrouter.engines.flower.run_link import Arrived


class InMemoryLink:
    """``clients`` by node id; ``failures`` by node id: a function of what a client sent that gives what arrives."""

    def __init__(self, clients, **failures):
        self.clients, self.questions, self.asked, self.pushes = clients, {}, [], 0
        self.failures = {int(name.removeprefix("node")): failure for name, failure in failures.items()}

    def push(self, content, nodes, ttl):
        self.pushes += 1
        sent = []
        for node in nodes:
            message_id = f"message-{len(self.asked)}"
            self.questions[message_id] = node, content
            self.asked.append(node)
            sent.append(message_id)
        return sent

    def pull(self, message_ids, most):
        found = []
        for message_id in message_ids:
            node, content = self.questions.pop(message_id, (None, b""))
            if node is None:
                continue
            if node not in self.clients:
                # As the SuperLink reports a node that is gone: as its own message.
                found.append(Arrived(message_id, 1, reason="not connected"))
                continue
            answer = answer_exchange(content, lambda node=node: self.clients[node], lambda verb: None)
            found += self.failures.get(node, lambda arrived: [arrived])(Arrived(message_id, node, answer))
        return found
