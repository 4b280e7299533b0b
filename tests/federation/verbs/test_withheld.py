"""A withheld reply travels as the rule that withholds it, whatever the verb, and says no more than that."""

import json
from dataclasses import replace

import numpy as np
import pytest

from conftest import drawn_evaluations
from federation.verbs.requests import requests
from fedrouter.engines.flower.answering import answer_exchange
from fedrouter.engines.flower.encoding import Part, encode
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadMessage
from fedrouter.federation.client import Client
from fedrouter.federation.message import WITHHELD
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.middleware.validation import Checked, fault
from fedrouter.federation.privacy.policy import CLEAR
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.federation.verbs.verb import RULES, AlwaysSent, MinimumSizes, SecureSum, Withheld
from fedrouter.testing.engines import content

REQUESTS = requests()
WITHHOLDING = [name for name, verb in VERBS.items() if isinstance(verb.withheld, Withheld)]
ROWS = drawn_evaluations(queries=200, seed=4)
FEW = ROWS.take(np.flatnonzero(ROWS.query < 2))
NONE = ROWS.take(np.zeros(0, np.int64))


def answered(name, rows, request=None, **options):
    return Client("one", rows, replace(CLEAR, **options)).answer(name, request or REQUESTS[name])


def test_every_verb_that_sums_rows_states_how_a_withheld_reply_travels():
    sums = {
        name
        for name, verb in VERBS.items()
        if isinstance(verb.disclosure, MinimumSizes) and isinstance(verb.secure_sum, SecureSum)
    }
    assert set(WITHHOLDING) == sums
    others = {name for name, verb in VERBS.items() if isinstance(verb.withheld, AlwaysSent)}
    assert others == set(VERBS) - sums


@pytest.mark.parametrize("name", WITHHOLDING)
@pytest.mark.parametrize("rows", [FEW, NONE], ids=["few", "none"])
def test_a_withheld_reply_is_a_few_bytes_and_is_read_as_the_reply_with_nothing_in_it(name, rows):
    verb, reply = VERBS[name], answered(name, rows)
    arrays, scalars = reply.pack()
    assert not arrays
    assert reply.withheld_by == json.loads(scalars)[WITHHELD] == "cell"  # few rows are not told from none
    assert len(scalars) < 150
    read = verb.read(REQUESTS[name], reply.pack())
    assert type(read) is verb.reply
    assert read.pack() == reply.pack()
    assert fault(name, REQUESTS[name], read) is None
    masked = Client("one", rows, CLEAR).answer(name, REQUESTS[name], hidden=True)
    assert not masked.withheld_by
    assert content(replace(read)) == content(masked)


@pytest.mark.parametrize("name", WITHHOLDING)
def test_a_reply_with_something_in_it_is_sent_as_it_is(name):
    reply = answered(name, ROWS, minimum_sizes=None)
    assert not reply.withheld_by
    assert content(VERBS[name].read(REQUESTS[name], reply.pack())) == content(reply)


@pytest.mark.parametrize("name", WITHHOLDING)
def test_under_masks_a_reply_has_its_full_length_whatever_is_in_it(name):
    sums, request = VERBS[name].secure_sum, REQUESTS[name]
    replies = [Client("one", rows, CLEAR).answer(name, request, hidden=True) for rows in (ROWS, FEW, NONE)]
    assert len({len(sums.flatten(request, reply, 3)) for reply in replies}) == 1


def test_withheld_cells_are_bytes_where_they_were_kilobytes():
    rows = drawn_evaluations(queries=60, dimension=64)
    asked = StatisticsRequest(rows.embeddings, rows.pool.names)
    assert answered("statistics", rows, asked, minimum_sizes=None).size > 2_000
    client = Client("one", rows.take(np.flatnonzero(rows.query < 4)), CLEAR)
    sent = answer_exchange(encode([Part("statistics", asked.pack())]), lambda: client, lambda verb: None)
    assert len(sent) < 300
    assert client.answer("statistics", asked).size < 50


def test_the_rule_is_named_where_there_are_enough_queries_for_a_cell():
    rows = drawn_evaluations(queries=7, per_query=3)
    assert answered("cost_totals", rows).withheld_by == "say"
    assert answered("cost_totals", rows.take(np.flatnonzero(rows.query < 4))).withheld_by == "cell"
    assert answered("cost_totals", NONE, minimum_sizes=None).withheld_by == "rows"


@pytest.mark.parametrize(
    ("name", "arrays", "scalars"),
    [
        ("statistics", {}, {WITHHELD: "my prompt"}),
        ("statistics", {"count": np.ones(3, np.int64)}, {WITHHELD: "cell"}),
        ("statistics", {}, {WITHHELD: "cell", "more": 1}),
        ("vote", {}, {WITHHELD: "cell", "count": 7}),
        ("cluster", {}, {WITHHELD: "cell"}),
        ("hello", {}, {WITHHELD: "cell"}),
        ("statistics", {}, {WITHHELD: ["cell"]}),
    ],
)
def test_what_is_not_withheld_by_a_rule_is_no_reply(name, arrays, scalars):
    with pytest.raises(BadMessage):
        VERBS[name].read(REQUESTS[name], (arrays, json.dumps(scalars)))


def test_a_checkpoint_and_validation_take_withheld_replies_as_they_come(tmp_path):
    clients = [Client("few", FEW), Client("many", drawn_evaluations(queries=400, seed=1))]
    said = []
    checked = Checked(LocalFederation(clients), withheld=lambda *line: said.append(line))
    first = Checkpointed(checked, tmp_path).ask("cost_scale", REQUESTS["cost_scale"])
    again = Checkpointed(LocalFederation([]), tmp_path).ask("cost_scale", REQUESTS["cost_scale"])
    assert said == [("few", "cost_scale", "cell")]
    assert {name: content(reply) for name, reply in first.items()} == {n: content(r) for n, r in again.items()}
    assert again["few"].withheld_by == "cell"
    assert again["few"].dimension == FEW.dimension


def test_every_rule_has_words():
    stated = {size for name in WITHHOLDING for size in VERBS[name].disclosure.sizes}
    assert stated <= set(RULES)
