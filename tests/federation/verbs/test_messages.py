"""What leaves a client: only listed types, validated at both ends, and nothing private inside."""

import dataclasses
import json
from importlib import import_module

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import CellStatistics, Centroids
from fedrouter.federation.families.mlp import Costs, CostsRequest
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.message import Message, Request, Sums
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.pool import ModelPool

POOL = ModelPool(["model-0", "model-1", "model-2"])


def exact(*values):
    return ExactSums.of(np.array(values, float), np.arange(len(values)), len(values))


class Recorder(LocalFederation):
    """Keeps every message that crosses, as packed on the wire."""

    def ask(self, verb, payload, to=None):
        replies = super().ask(verb, payload, to)
        self.sent = getattr(self, "sent", [])
        self.sent += [(verb, payload, reply.pack()) for reply in replies.values()]
        return replies


@pytest.fixture(scope="module", params=FAMILIES)
def sent(request):
    family = FAMILIES[request.param]
    federation = Recorder(Client(f"client-{s}", drawn_evaluations(queries=200, seed=s)) for s in range(3))
    family.learn(federation, POOL, family.settings())
    return federation.sent


def test_only_listed_replies_leave_a_client(sent):
    assert sent
    for verb, request, packed in sent:
        assert type(VERBS[verb].read(request, packed)) is VERBS[verb].reply


def test_no_raw_embedding_of_a_large_client_is_among_what_was_sent(sent):
    rows = [vector for seed in range(3) for vector in drawn_evaluations(queries=200, seed=seed).embeddings]
    for verb, _, (arrays, _) in sent:
        for array in arrays.values():
            if verb == "cluster" and array.ndim == 2:
                sizes = arrays["sizes"]
                # The paper's form sends a cluster of one as it is; floors against that are not part of it.
                array = array[sizes > 1]
            for row in rows:
                assert row.tobytes() not in array.tobytes()


def test_every_message_survives_packing(sent):
    for verb, request, packed in sent:
        arrays, scalars = VERBS[verb].read(request, packed).pack()
        assert json.loads(scalars) == json.loads(packed[1])
        assert arrays.keys() == packed[0].keys()
        for name, array in arrays.items():
            assert array.dtype == packed[0][name].dtype
            assert array.tobytes() == packed[0][name].tobytes()


def test_every_message_type_is_a_request_or_a_reply_of_a_verb():
    defined = {
        value
        for module in {(verb.answer.__module__) for verb in VERBS.values()}
        for value in vars(import_module(module)).values()
        if isinstance(value, type) and issubclass(value, Message) and value not in (Message, Request, Sums)
    }
    assert defined == {kind for verb in VERBS.values() for kind in (verb.request, verb.reply)}


def test_a_message_is_packed_once_and_an_unpacked_one_not_again():
    message = Centroids(np.zeros((3, 4), np.float32), np.ones(3, np.int64))
    assert message.pack() is message.pack()
    again = Centroids.unpack(message.pack())
    assert again.pack() is message.pack()
    assert dataclasses.replace(again, sizes=np.full(3, 7)).pack()[0]["sizes"][0] == 7


def test_a_size_is_counted_in_bytes():
    message = Centroids(np.zeros((3, 4), np.float32), np.ones(3, np.int64))
    assert message.size == 3 * 4 * 4 + 3 * 8 + 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Centroids(np.full((1, 2), np.nan, np.float32), np.ones(1, np.int64)), "centres must be finite"),
        (lambda: Centroids(np.zeros((1, 2)), np.ones(1, np.int64)), "centres must be float32"),
        (lambda: Centroids(np.zeros((2, 2), np.float32), np.ones(1, np.int64)), "sizes must be int64 of shape"),
        (lambda: Centroids(np.zeros((1, 2), np.float32), np.zeros(1, np.int64)), "sizes must be above 0"),
        (lambda: CellStatistics(np.ones(1), *[np.zeros(1, np.int64)] * 3), "rows must be int64"),
        (lambda: Costs(np.array([2]), exact(8), np.array([1.0]), np.ones(3, np.int64)), "squares must be int64"),
    ],
)
def test_a_message_that_breaks_the_rules_is_refused_with_the_reason(make, said):
    with pytest.raises(BadMessage, match=said):
        make()


def test_a_message_with_parts_missing_or_left_over_is_refused():
    arrays, scalars = Centroids(np.zeros((1, 2), np.float32), np.ones(1, np.int64)).pack()
    for wrong in ({"centres": arrays["centres"]}, {**arrays, "prompt": arrays["centres"]}, {}):
        with pytest.raises(BadMessage, match="Centroids: its fields do not fit"):
            Centroids.unpack((wrong, scalars))
    with pytest.raises(BadMessage, match="Centroids"):
        Centroids.unpack((arrays, '{"text": "a secret"}'))
    with pytest.raises(BadMessage, match="Centroids"):
        Centroids.unpack((arrays, "not json"))


def test_a_client_answers_only_what_is_listed():
    client = Client("one", drawn_evaluations())
    with pytest.raises(BadMessage, match="unknown verb 'dump'"):
        client.answer("dump", Centroids(np.zeros((1, 2), np.float32), np.ones(1, np.int64)))
    with pytest.raises(BadMessage, match="cluster: expected ClusterRequest, got Centroids"):
        client.answer("cluster", Centroids(np.zeros((1, 2), np.float32), np.ones(1, np.int64)))


def test_names_of_clients_are_distinct_and_not_empty():
    with pytest.raises(BadInput, match="two clients are called 'one'"):
        LocalFederation([Client("one", drawn_evaluations()), Client("one", drawn_evaluations())])
    with pytest.raises(BadInput, match="client name"):
        Client(" ", drawn_evaluations())


def test_replies_come_sorted_by_client():
    federation = LocalFederation(Client(name, drawn_evaluations()) for name in ("c", "a", "b"))
    assert list(federation.clients()) == ["a", "b", "c"]
    request = CostsRequest(POOL.names)
    assert list(federation.ask("costs", request)) == ["a", "b", "c"]
    assert list(federation.ask("costs", request, to=["c", "a"])) == ["a", "c"]


def test_messages_are_frozen():
    message = Centroids(np.zeros((1, 2), np.float32), np.ones(1, np.int64))
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.centres = None
