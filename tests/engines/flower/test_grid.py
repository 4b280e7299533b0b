"""Messages over Flower's grid: each member's reply once, sent again where none came, and no longer than asked for."""

import itertools
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from fedrouter.engines.flower import grid as module
from fedrouter.engines.flower.client_relay import CONTENT, RECORD
from fedrouter.engines.flower.grid import GridLink

NODES = {"bank": 1, "clinic": 2, "school": 3}


def message(content, node, kind, ttl):
    """What a message is to a grid. Flower's own can be made inside a run only."""
    assert ttl > 0
    return SimpleNamespace(content=content, metadata=SimpleNamespace(dst_node_id=node, message_type=kind))


def reply(identifier, answer):
    content = RecordDict({RECORD: ConfigRecord({CONTENT: answer})} if isinstance(answer, bytes) else {})
    return SimpleNamespace(
        content=content,
        metadata=SimpleNamespace(reply_to_message_id=identifier),
        has_error=lambda: answer == "error",
    )


class Wire(Grid):
    """A grid whose nodes answer as a test says: bytes, an error, another app's reply, or nothing."""

    def __init__(self, answer, online=lambda: (1, 2, 3)):
        self.answer, self.online = answer, online
        self.sent, self.waiting, self.ids = [], {}, itertools.count()

    def set_run(self, run):
        pass

    run = property(lambda self: None)

    def create_message(self, *_, **__):
        raise NotImplementedError

    def get_node_ids(self):
        return self.online()

    def push_messages(self, messages):
        found = []
        for message in messages:
            name = {node: name for name, node in NODES.items()}[message.metadata.dst_node_id]
            assert message.metadata.message_type == "query"
            self.sent.append(name)
            identifier = f"m{next(self.ids)}"
            self.waiting[identifier] = name, message, self.answer(name, self.sent.count(name), message)
            found.append(identifier)
        return found

    def pull_messages(self, message_ids):
        for identifier in list(message_ids):
            answer = self.waiting[identifier][-1]
            if answer is not None:
                yield reply(identifier, answer)

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "Message", message)
    monkeypatch.setattr(module, "POLL", 0.001)
    monkeypatch.setattr(module, "AFTER_ERROR", 0.01)
    monkeypatch.setattr(module, "LOOK", 0.01)


def exchanged(wire, seconds=30.0, **options):
    found = []
    messages = {name: name.encode() for name in NODES}
    GridLink(wire, lambda: NODES, **options).exchange(messages, seconds, lambda *reply: found.append(reply))
    return found


def test_a_member_that_is_admitted_after_an_exchange_began_is_asked_too():
    wire, looks, found = Wire(lambda name, time, message: b"here"), [], []

    def nodes():
        looks.append(1)
        return NODES if len(looks) > 2 else {"bank": 1}

    messages = {name: name.encode() for name in NODES}
    GridLink(wire, nodes).exchange(messages, 30.0, lambda *reply: found.append(reply))
    assert sorted(found) == [(name, b"here") for name in sorted(NODES)]
    assert sorted(wire.sent) == sorted(NODES)


def content(message):
    return message.content[RECORD][CONTENT]


def test_each_member_gets_its_own_message_and_its_reply_is_handed_over():
    wire = Wire(lambda name, times, message: content(message)[::-1])
    assert sorted(exchanged(wire)) == [(name, name.encode()[::-1]) for name in NODES]
    assert sorted(wire.sent) == sorted(NODES)


@pytest.mark.parametrize("wrong", ["error", "another app"])
def test_a_reply_that_is_none_is_asked_for_again(wrong):
    wire = Wire(lambda name, times, message: wrong if (name, times) == ("bank", 1) else b"yes")
    assert sorted(exchanged(wire)) == [(name, b"yes") for name in NODES]
    assert wire.sent.count("bank") == 2


def test_a_lost_message_is_sent_again_and_two_replies_count_once():
    wire = Wire(lambda name, times, message: None if (name, times) == ("bank", 1) else b"yes")
    assert sorted(exchanged(wire, again=0.02)) == [(name, b"yes") for name in NODES]
    assert wire.sent.count("bank") >= 2


def test_an_exchange_ends_when_its_time_is_over():
    wire = Wire(lambda name, times, message: None if name == "bank" else b"yes")
    assert sorted(exchanged(wire, seconds=0.3)) == [("clinic", b"yes"), ("school", b"yes")]


def test_a_member_that_is_not_connected_is_not_waited_for():
    wire = Wire(lambda name, times, message: None if name == "bank" else b"yes", online=lambda: (2, 3))
    assert sorted(exchanged(wire, seconds=600.0, offline=0.1)) == [("clinic", b"yes"), ("school", b"yes")]


def test_a_member_without_a_node_is_not_asked():
    wire, found = Wire(lambda name, times, message: b"yes"), []
    GridLink(wire, lambda: {"bank": 1}).exchange({"bank": b"x", "clinic": b"x"}, 5.0, lambda *one: found.append(one))
    assert found == [("bank", b"yes")]


def test_a_member_that_is_admitted_after_the_epoch_began_is_seen():
    admitted = {}
    link = GridLink(Wire(lambda name, times, message: b"yes"), lambda: admitted)
    assert link.connected() == set()
    admitted["bank"] = 1
    assert link.connected() == {"bank"}
