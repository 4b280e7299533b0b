"""The Flower engine: the same answers as in one process, and whatever a client does costs that client alone."""

import json
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest

from conftest import drawn_evaluations
from engines.flower.in_memory_link import InMemoryLink
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.engines.flower import engine
from fedrouter.engines.flower.answering import error_type
from fedrouter.engines.flower.encoding import Part, decode, encode
from fedrouter.engines.flower.engine import FlowerFederation, refusal
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.federation import Question
from fedrouter.federation.message import Message
from fedrouter.federation.middleware.validation import Checked
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.pool import ModelPool
from fedrouter.testing.engines import ENGINE_CHECKS

POOL = ModelPool(["model-0", "model-1", "model-2"])
NODES = {"alpha": 11, "beta": 12, "gamma": 13}
REQUEST = CostsRequest(POOL.names)
PROMPT = "my secret prompt"


def clients():
    return {name: Client(name, drawn_evaluations(queries=120, seed=len(name))) for name in NODES}


def over_flower(timeout=5.0, members=NODES, also=None, **failures):
    """A federation over a link in memory, and what it reported."""
    dropped = []
    link = InMemoryLink({NODES[name]: client for name, client in clients().items()} | (also or {}), **failures)
    report = lambda *report: dropped.append(report)  # noqa: E731
    return FlowerFederation(link, members, timeout, report), dropped


def make_engine(clients):
    """The engine over a link in memory, in which a dropped reply is an error."""
    nodes = {client.name: number for number, client in enumerate(clients, 11)}
    link = InMemoryLink({nodes[client.name]: client for client in clients})
    return FlowerFederation(link, nodes, 5.0, lambda *report: pytest.fail(str(report)))


@pytest.mark.parametrize("check", ENGINE_CHECKS)
def test_the_flower_engine_keeps_the_contract(check):
    check(make_engine)


def test_a_request_is_written_and_pushed_once_for_all_clients(monkeypatch):
    written = []
    monkeypatch.setattr(engine, "encode", lambda parts: written.append(parts) or encode(parts))
    federation, _ = over_flower()
    federation.ask("costs", REQUEST)
    assert written == [[Part("costs", REQUEST.pack())]]
    assert federation._link.pushes == 1


def test_several_questions_travel_in_one_exchange():
    federation, dropped = over_flower()
    hello, scale = federation.ask_all([Question("hello", HelloRequest()), Question("costs", REQUEST)])
    assert federation._link.pushes == 1
    assert sorted(federation._link.asked) == sorted(NODES.values())
    honest = LocalFederation(clients().values())
    assert {name: reply.models for name, reply in hello.items()} == {
        name: reply.models for name, reply in honest.ask("hello", HelloRequest()).items()
    }
    assert {name: reply.total for name, reply in scale.items()} == {
        name: reply.total for name, reply in honest.ask("costs", REQUEST).items()
    }
    assert dropped == []


def test_a_question_that_a_client_does_not_answer_costs_none_of_the_others():
    class Selective(Client):
        def answer(self, verb, request, hidden=False):
            if verb == "hello":
                raise Refused(PROMPT)
            return super().answer(verb, request, hidden)

    federation, dropped = over_flower(also={12: Selective("beta", drawn_evaluations())})
    hello, scale = federation.ask_all([Question("hello", HelloRequest()), Question("costs", REQUEST)])
    assert list(hello) == ["alpha", "gamma"]
    assert list(scale) == ["alpha", "beta", "gamma"]
    assert dropped == [("beta", "hello", "refused: its privacy settings forbid it")]


def test_a_request_is_packed_once_and_a_reply_once_from_client_to_server(monkeypatch, tmp_path):
    """Through journal, records, size limits and validation."""
    packed, pack = [], Message.__dict__["_packed"].func
    counted = cached_property(lambda message: packed.append(type(message).__name__) or pack(message))
    counted.__set_name__(Message, "_packed")
    monkeypatch.setattr(Message, "_packed", counted)
    journals = {name: Journal(tmp_path / name) for name in NODES}
    rows = drawn_evaluations(queries=120)
    link = InMemoryLink({node: Client(name, rows, memory=journals[name]) for name, node in NODES.items()})
    federation = Checked(FlowerFederation(link, NODES, 5.0, lambda *report: pytest.fail(str(report))))
    assert len(federation.ask("costs", CostsRequest(POOL.names))) == 3
    assert sorted(packed) == ["CostsRequest", *["Costs"] * 3]
    for journal in journals.values():
        journal.close()


def test_a_client_that_cannot_be_asked_is_reported():
    class Partial(InMemoryLink):
        def push(self, content, nodes, ttl):
            return ["", *super().push(content, nodes, ttl)[1:]]

    dropped = []
    nodes = {NODES[name]: client for name, client in clients().items()}
    federation = FlowerFederation(Partial(nodes), NODES, 5.0, lambda *report: dropped.append(report))
    assert list(federation.ask("costs", REQUEST)) == ["beta", "gamma"]
    assert dropped == [("alpha", "costs", "could not be asked")]


def altered(arrived, **scalars):
    """What arrived, with other scalars in it."""
    part = decode(arrived.content)[0]
    arrays, text = part.packed
    lie = encode([replace(part, packed=(arrays, json.dumps({**json.loads(text), **scalars})))])
    return [replace(arrived, content=lie)]


def another(**arrays):
    """What arrived, with other arrays in it."""

    def failure(arrived):
        part = decode(arrived.content)[0]
        lie = encode([replace(part, packed=({**part.packed[0], **arrays}, part.packed[1]))])
        return [replace(arrived, content=lie)]

    return failure


def failed(word):
    return lambda arrived: [replace(arrived, content=encode([Part("costs", error=word)]))]


FAILURES = {
    "silence": (lambda arrived: [], "no answer within 0.2 s"),
    "an error of the client's": (failed("BadInput"), "refused: BadInput"),
    "an error with a text": (failed(f"ValueError: {PROMPT}"), "refused"),
    "an error of the SuperLink's": (
        lambda arrived: [replace(arrived, content=None, reason="not connected")],
        "not connected",
    ),
    "someone else's answer": (lambda arrived: [replace(arrived, node=99)], "answered by someone else"),
    "an answer to something else": (
        lambda arrived: [replace(arrived, message_id="message-99")],
        "no answer within 0.2 s",
    ),
    "nothing": (lambda arrived: [replace(arrived, content=b"")], "cannot be read"),
    "bytes of something else": (lambda arrived: [replace(arrived, content=PROMPT.encode())], "cannot be read"),
    "an answer cut short": (lambda arrived: [replace(arrived, content=arrived.content[:-1])], "cannot be read"),
    "an answer with more": (lambda arrived: [replace(arrived, content=arrived.content + b"x")], "cannot be read"),
    "answers to more questions": (
        lambda arrived: [replace(arrived, content=encode(2 * decode(arrived.content)))],
        "answers to other questions",
    ),
    "an answer to another verb": (
        lambda arrived: [replace(arrived, content=encode([replace(decode(arrived.content)[0], verb="hello")]))],
        "answers to other questions",
    ),
    "a scalar too many": (lambda arrived: altered(arrived, more=PROMPT), "do not fit"),
    "a field too many": (another(more=np.ones(2)), "do not fit"),
    "a field of another type": (another(count=np.ones(3)), "count must be int64"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_costs_that_clients_contribution_and_nothing_else(name):
    failure, reason = FAILURES[name]
    federation, dropped = over_flower(timeout=0.2, node12=failure)
    replies = federation.ask("costs", REQUEST)
    assert list(replies) == ["alpha", "gamma"]
    honest = LocalFederation(clients().values()).ask("costs", REQUEST)
    assert all(replies[each].total == honest[each].total for each in replies)
    assert [each[:2] for each in dropped] == [("beta", "costs")]
    assert reason in dropped[0][2]
    assert PROMPT not in dropped[0][2]


def test_an_answer_that_comes_twice_counts_once():
    federation, dropped = over_flower(node12=lambda arrived: [arrived, arrived])
    assert len(federation.ask("costs", REQUEST)) == 3
    assert dropped == []


def test_a_node_that_is_gone_is_named_though_the_superlink_answers_in_its_own_name():
    federation, dropped = over_flower(members={**NODES, "delta": 14})
    assert list(federation.ask("costs", REQUEST)) == ["alpha", "beta", "gamma"]
    assert dropped == [("delta", "costs", "not connected")]


def test_a_client_that_is_no_longer_on_the_roster_is_one_that_does_not_answer():
    federation, dropped = over_flower()
    assert list(federation.ask("costs", REQUEST, ["beta", "zeta"])) == ["beta"]
    assert dropped == [("zeta", "costs", "not on the roster")]


def test_an_error_inside_a_client_sends_its_type_and_never_its_text():
    class Careless(Client):
        def answer(self, verb, request, hidden=False):
            raise self.error

    for error, word in (
        (BadInput(PROMPT), "BadInput"),
        (KeyError(PROMPT), "KeyError"),
        (Refused(PROMPT), "its privacy settings forbid it"),
        (Refused(PROMPT, "secure_sum"), "it does not take part in this secure sum"),
        (type(PROMPT, (RuntimeError,), {})(PROMPT), "RuntimeError"),
        (UnicodeDecodeError("utf-8", PROMPT.encode(), 0, 1, PROMPT), "UnicodeDecodeError"),
    ):
        careless = Careless("beta", drawn_evaluations())
        careless.error = error
        arrived = []
        federation, dropped = over_flower(
            also={12: careless}, node12=lambda each, into=arrived: into.append(each) or [each]
        )
        assert list(federation.ask("costs", REQUEST)) == ["alpha", "gamma"]
        assert dropped == [("beta", "costs", f"refused: {word}")]
        assert PROMPT.encode() not in arrived[0].content


def test_a_class_of_another_package_is_reported_as_the_built_in_one():
    assert error_type(type(PROMPT, (BadInput,), {})(PROMPT)) == "BadInput"
    assert error_type(type("ValueError", (Exception,), {})()) == "Exception"


@pytest.mark.parametrize("text", ["", "two words", "a" * 41, "\x1b[31mred", "line\nbreak", "é"])
def test_of_an_errors_text_only_one_plain_word_is_believed(text):
    assert refusal(text) == "refused"


def test_hello_names_only_models_with_enough_rows():
    rows = drawn_evaluations(queries=60)
    few = np.flatnonzero(rows.model != 1)
    rows = rows.take(np.sort(np.concatenate([few, np.flatnonzero(rows.model == 1)[:4]])))
    hello = Client("alpha", rows, encoder="mine").answer("hello", HelloRequest())
    assert (hello.name, hello.encoder, hello.dimension, hello.models) == ("alpha", "mine", 8, ("model-0", "model-2"))
    assert (
        Client("alpha", rows, PrivacyPolicy(minimum_sizes=None, secure_only=False))
        .answer("hello", HelloRequest())
        .models
        == POOL.names
    )


@pytest.mark.parametrize(
    "change",
    [{"name": ""}, {"dimension": 0}, {"dimension": True}, {"models": ("a", "a")}, {"models": (1,)}, {"normalised": 1}],
)
def test_a_hello_that_breaks_its_rules_is_refused(change):
    whole = {"name": "a", "encoder": "e", "dimension": 3, "normalised": True, "models": ("m",)}
    VERBS["hello"].reply(**whole)
    with pytest.raises(BadMessage):
        VERBS["hello"].reply(**(whole | change))


def naming(models):
    """A client whose reply to `hello` names these models, whatever its fedrouter would let it say."""

    def failure(arrived):
        return altered(arrived, models=models) if decode(arrived.content)[0].verb == "hello" else [arrived]

    return failure


@pytest.mark.parametrize("models", [["\ud800"], ["\x1b[2J"], [f"model-{index}" for index in range(2000)]])
def test_a_client_that_sends_hostile_names_is_refused_in_a_line_and_the_run_goes_on(models, tmp_path):
    federation, dropped = over_flower(node12=naming(models))
    job = Job(family="kmeans", settings={"k_local": 4, "k_global": 5})
    result = perform(job, federation, tmp_path, ProgressLog(tmp_path))
    assert [entry["name"] for entry in result["clients"]] == ["alpha", "gamma"]
    assert [(name, verb) for name, verb, _ in dropped] == [("beta", "hello")]
    assert dropped[0][2].startswith("Hello: ")
    assert "\n" not in dropped[0][2]
    dropped[0][2].encode()
