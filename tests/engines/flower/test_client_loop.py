"""The client's loop: polls often right after a question, refuses foreign runs, and survives what it cannot read."""

import time
from types import SimpleNamespace

import pytest

from conftest import drawn_evaluations
from fedrouter.engines.flower.client_loop import EAGER, IDLE, answer_questions, pause
from fedrouter.engines.flower.encoding import Part, decode, encode
from fedrouter.engines.flower.node_link import RunOver
from fedrouter.errors import BadMessage
from fedrouter.federation.client import Client
from fedrouter.federation.verbs.hello import HelloRequest

QUESTION = encode([Part("hello", HelloRequest().pack())])


class Link:
    """Messages in order, each a run and its content, an error, or None for no message."""

    def __init__(self, *messages, trusted=(1,), seconds=60.0):
        self.messages, self.trusted, self.sent, self.refused = list(messages), trusted, [], []
        self.seconds = seconds

    def receive(self):
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message and SimpleNamespace(run=message[0], content=message[1], deadline=time.time() + self.seconds)

    def trusts(self, run):
        return run in self.trusted

    def send(self, incoming, content, seconds):
        self.sent.append((incoming.run, decode(content)))

    def refuse(self, incoming, untrusted):
        self.refused.append((incoming.run, untrusted))


def answered(link):
    """What the loop said while it worked through the messages."""
    said = []
    answer_questions(
        link,
        lambda run: Client("alpha", drawn_evaluations()),
        lambda seconds: not link.messages,
        said.append,
    )
    return said


def test_questions_are_answered_and_named():
    link = Link(None, (1, QUESTION), None, (1, QUESTION))
    assert answered(link) == ["request: hello", "request: hello"]
    assert [(run, part.verb, part.error) for run, (part,) in link.sent] == [(1, "hello", "")] * 2


def test_a_run_with_another_app_is_refused_before_its_questions_are_read():
    link = Link((7, b"anything"))
    assert answered(link) == ["refused a run: its app is not the one of this fedrouter"]
    assert link.refused == [(7, True)]
    assert link.sent == []


@pytest.mark.parametrize("broken", [BadMessage("message: cannot be read"), RunOver("over"), (1, b"no questions")])
def test_what_cannot_be_read_or_has_ended_does_not_end_the_loop(broken):
    link = Link(broken, (1, QUESTION))
    assert answered(link)[-1] == "request: hello"
    assert len(link.sent) == 1


def test_an_answer_that_nobody_waits_for_is_not_sent():
    link = Link((1, QUESTION), (1, QUESTION), seconds=-1.0)
    assert answered(link) == ["request: hello", "not sent: the answer took longer than the coordinator waits"] * 2
    assert link.sent == []


def test_an_unknown_verb_is_an_error_of_that_question_only():
    link = Link((1, encode([Part("steal", ({}, "{}")), Part("hello", HelloRequest().pack())])))
    assert answered(link) == ["request: hello"]
    assert [part.error for part in link.sent[0][1]] == ["BadMessage", ""]


def test_it_asks_often_after_a_question_and_seldom_at_rest():
    assert pause(0) == EAGER
    assert pause(5) == pytest.approx(0.5)
    assert pause(10**6) == IDLE
