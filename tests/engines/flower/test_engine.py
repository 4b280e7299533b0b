"""The Flower engine: the same answers as in one process, and whatever a client does costs that client alone."""

import json
from functools import cached_property
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from conftest import drawn_evaluations
from engines.flower.in_memory_grid import InMemoryGrid, altered
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.engines.flower import engine
from fedrouter.engines.flower.client_app import error_type, make_client_app
from fedrouter.engines.flower.engine import FlowerFederation, error_reason
from fedrouter.engines.flower.records import from_records, to_records
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.message import Message
from fedrouter.federation.middleware.validation import Checked
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.pool import ModelPool
from fedrouter.testing.engines import ENGINE_CHECKS

POOL = ModelPool(["model-0", "model-1", "model-2"])
NODES = {"alpha": 11, "beta": 12, "gamma": 13}
REQUEST = CostScaleRequest(POOL.names)
PROMPT = "my secret prompt"


@pytest.fixture(autouse=True)
def in_a_flower_process(monkeypatch):
    """Flower lets only its own processes write messages."""
    for name, value in (("run_id", 1), ("task_id", 1), ("node_id", 1)):
        monkeypatch.setattr(TaskIdentity, f"_{name}", value, raising=False)


def clients():
    return {name: Client(name, drawn_evaluations(queries=120, seed=len(name))) for name in NODES}


def over_flower(timeout=5.0, members=NODES, also=None, **failures):
    """A federation over a grid in memory, and what it reported."""
    dropped = []
    grid = InMemoryGrid({NODES[name]: client for name, client in clients().items()} | (also or {}), **failures)
    report = lambda *report: dropped.append(report)  # noqa: E731
    return FlowerFederation(grid, members, timeout, report, pause=0.01), dropped


def make_engine(clients):
    """The engine over a grid in memory, in which a dropped reply is an error."""
    nodes = {client.name: number for number, client in enumerate(clients, 11)}
    grid = InMemoryGrid({nodes[client.name]: client for client in clients})
    return FlowerFederation(grid, nodes, 5.0, lambda *report: pytest.fail(str(report)), pause=0.01)


@pytest.mark.parametrize("check", ENGINE_CHECKS)
def test_the_flower_engine_keeps_the_contract(check):
    check(make_engine)


def test_a_request_is_written_and_pushed_once_for_all_clients(monkeypatch):
    written = []
    monkeypatch.setattr(engine, "to_records", lambda message: written.append(message) or to_records(message))
    federation, _ = over_flower()
    federation.ask("cost_scale", REQUEST)
    assert written == [REQUEST]
    assert federation._grid.pushes == 1


def test_a_request_is_packed_once_and_a_reply_once_from_client_to_server(monkeypatch, tmp_path):
    """Through journal, records, size limits and validation."""
    packed, pack = [], Message.__dict__["_packed"].func
    counted = cached_property(lambda message: packed.append(type(message).__name__) or pack(message))
    counted.__set_name__(Message, "_packed")
    monkeypatch.setattr(Message, "_packed", counted)
    journals = {name: Journal(tmp_path / name) for name in NODES}
    rows = drawn_evaluations(queries=120)
    grid = InMemoryGrid({node: Client(name, rows, memory=journals[name]) for name, node in NODES.items()})
    federation = Checked(FlowerFederation(grid, NODES, 5.0, lambda *report: pytest.fail(str(report)), pause=0.01))
    assert len(federation.ask("cost_scale", CostScaleRequest(POOL.names))) == 3
    assert sorted(packed) == ["CostScaleRequest", *["LogCostSums"] * 3]
    for journal in journals.values():
        journal.close()


def test_if_nothing_can_be_pushed_every_client_is_reported():
    class Down(InMemoryGrid):
        def push_messages(self, messages):
            raise ConnectionError(PROMPT)

    class Refusing(InMemoryGrid):
        def push_messages(self, messages):
            return []

    class Partial(InMemoryGrid):
        def push_messages(self, messages):
            return [None, *list(super().push_messages(messages))[1:]]

    for grid, reason, answered in (
        (Down, "could not be asked (ConnectionError)", []),
        (Refusing, "could not be asked", []),
        (Partial, "could not be asked", ["beta", "gamma"]),
    ):
        dropped = []
        nodes = {NODES[name]: client for name, client in clients().items()}
        federation = FlowerFederation(grid(nodes), NODES, 5.0, lambda *report: dropped.append(report), pause=0.01)  # noqa: B023
        assert list(federation.ask("cost_scale", REQUEST)) == answered
        assert dropped == [(name, "cost_scale", reason) for name in NODES if name not in answered]


def swapped(reply, **parts):
    return [altered(reply, content=RecordDict({**dict(reply.content), **parts}))]


def another(array):
    def failure(reply):
        return swapped(reply, arrays=ArrayRecord({**dict(reply.content["arrays"]), "count": array}))

    return failure


PICKLED = Array("object", (1,), "numpy.ndarray", b"\x80\x04\x95")
TORCHED = Array("float32", (1,), "torch.Tensor", b"12")
HUGE = Array(np.zeros(10**6))
FAILURES = {
    "silence": (lambda reply: [], "no answer within 0.2 s"),
    "an error of the client's": (
        lambda reply: [altered(reply, error=Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "BadInput"))],
        "refused: BadInput",
    ),
    "an error with a text": (
        lambda reply: [altered(reply, error=Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"ValueError: {PROMPT}"))],
        "refused",
    ),
    "a crash": (lambda reply: [altered(reply, error=Error(ErrorCode.CLIENT_APP_CRASHED, PROMPT))], "its process died"),
    "an error nobody knows": (lambda reply: [altered(reply, error=Error(77, PROMPT))], "no answer"),
    "someone else's answer": (lambda reply: [altered(reply, src_node_id=99)], "answered by someone else"),
    "an answer to something else": (
        lambda reply: [altered(reply, reply_to_message_id="message-99")],
        "no answer within 0.2 s",
    ),
    "no records": (lambda reply: [altered(reply, content=RecordDict({"x": ConfigRecord({"json": PROMPT})}))], "arrays"),
    "no arrays": (lambda reply: swapped(reply, arrays=ConfigRecord({"a": PROMPT})), "arrays and scalars"),
    "scalars that are no JSON": (lambda reply: swapped(reply, scalars=ConfigRecord({"json": PROMPT})), "do not fit"),
    "scalars that are no text": (lambda reply: swapped(reply, scalars=ConfigRecord({"json": 7})), "not text"),
    "more scalars": (
        lambda reply: swapped(reply, scalars=ConfigRecord({"json": "{}", "more": PROMPT})),
        "arrays and scalars",
    ),
    "a field too many": (
        lambda reply: swapped(reply, arrays=ArrayRecord({**dict(reply.content["arrays"]), "more": Array(np.ones(2))})),
        "do not fit",
    ),
    "a field of another type": (another(Array(np.ones(3))), "count must be int64"),
    "a pickle": (another(PICKLED), "cannot be read"),
    "another kind of tensor": (another(TORCHED), "cannot be read"),
    "rubbish bytes": (another(Array("int64", (3,), "numpy.ndarray", b"rubbish")), "cannot be read"),
    "far too much": (another(HUGE), "larger than its request allows"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_costs_that_clients_contribution_and_nothing_else(name):
    failure, reason = FAILURES[name]
    federation, dropped = over_flower(timeout=0.2, node12=failure)
    replies = federation.ask("cost_scale", REQUEST)
    assert list(replies) == ["alpha", "gamma"]
    honest = LocalFederation(clients().values()).ask("cost_scale", REQUEST)
    assert all(replies[each].total == honest[each].total for each in replies)
    assert [each[:2] for each in dropped] == [("beta", "cost_scale")]
    assert reason in dropped[0][2]
    assert PROMPT not in dropped[0][2]


def test_an_answer_that_comes_twice_counts_once():
    federation, dropped = over_flower(node12=lambda reply: [reply, reply])
    assert len(federation.ask("cost_scale", REQUEST)) == 3
    assert dropped == []


def test_a_node_that_is_gone_is_named_though_the_superlink_answers_in_its_own_name():
    federation, dropped = over_flower(members={**NODES, "delta": 14})
    assert list(federation.ask("cost_scale", REQUEST)) == ["alpha", "beta", "gamma"]
    assert dropped == [("delta", "cost_scale", "not connected")]


def test_a_client_that_is_no_longer_on_the_roster_is_one_that_does_not_answer():
    federation, dropped = over_flower()
    assert list(federation.ask("cost_scale", REQUEST, ["beta", "zeta"])) == ["beta"]
    assert dropped == [("zeta", "cost_scale", "not on the roster")]


def test_a_reply_that_cannot_even_be_fetched_keeps_no_other_away():
    def broken(reply):
        raise ValueError(PROMPT)

    federation, dropped = over_flower(node11=broken)
    assert list(federation.ask("cost_scale", REQUEST)) == ["beta", "gamma"]
    assert dropped == [("alpha", "cost_scale", "unreadable reply (ValueError)")]


def test_an_error_inside_a_client_sends_its_type_and_never_its_text():
    class Careless(Client):
        def answer(self, verb, request, hidden=False):
            raise self.error

    for error, word in (
        (BadInput(PROMPT), "BadInput"),
        (KeyError(PROMPT), "KeyError"),
        (Refused(PROMPT), "its privacy settings forbid it"),
        (Refused(PROMPT, "budget"), "its privacy budget is spent"),
        (type(PROMPT, (RuntimeError,), {})(PROMPT), "RuntimeError"),
        (UnicodeDecodeError("utf-8", PROMPT.encode(), 0, 1, PROMPT), "UnicodeDecodeError"),
    ):
        careless = Careless("beta", drawn_evaluations())
        careless.error = error
        arrived = []
        federation, dropped = over_flower(
            also={12: careless}, node12=lambda reply, into=arrived: into.append(reply) or [reply]
        )
        assert list(federation.ask("cost_scale", REQUEST)) == ["alpha", "gamma"]
        assert dropped == [("beta", "cost_scale", f"refused: {word}")]
        assert PROMPT not in repr(arrived[0])
        assert PROMPT.encode() not in arrived[0].deflate()


def test_a_class_of_another_package_is_reported_as_the_built_in_one():
    assert error_type(type(PROMPT, (BadInput,), {})(PROMPT)) == "BadInput"
    assert error_type(type("ValueError", (Exception,), {})()) == "Exception"


@pytest.mark.parametrize("text", [None, "", "two words", "a" * 41, "\x1b[31mred", "line\nbreak", "é"])
def test_of_an_errors_text_only_one_plain_word_is_believed(text):
    assert error_reason(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, text) == "refused"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_handler(verb):
    assert f"query.{verb}" in make_client_app(clients().__getitem__)._registered_funcs


def test_a_message_survives_the_records():
    client = clients()["alpha"]
    reply = client.answer("cost_scale", REQUEST)
    arrays_back, scalars = from_records(to_records(reply))
    again = type(reply).unpack((arrays_back, scalars))
    assert again.total == reply.total
    assert (again.count == reply.count).all()
    with pytest.raises(BadMessage, match="larger"):
        from_records(to_records(reply), most=-(10**6))


def test_hello_names_only_models_with_enough_rows():
    rows = drawn_evaluations(queries=60)
    few = np.flatnonzero(rows.model != 1)
    rows = rows.take(np.sort(np.concatenate([few, np.flatnonzero(rows.model == 1)[:4]])))
    hello = Client("alpha", rows, encoder="mine").answer("hello", HelloRequest())
    assert (hello.name, hello.encoder, hello.dimension, hello.models) == ("alpha", "mine", 8, ("model-0", "model-2"))
    assert Client("alpha", rows, PrivacyPolicy(minimum_sizes=None)).answer("hello", HelloRequest()).models == POOL.names


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

    def failure(reply):
        if not reply.metadata.message_type.endswith(".hello"):
            return [reply]
        arrays, scalars = from_records(reply.content)
        lie = json.dumps({**json.loads(scalars), "models": models})
        return [altered(reply, content=to_records(SimpleNamespace(pack=lambda: (arrays, lie))))]

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
