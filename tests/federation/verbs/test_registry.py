"""Verbs of other packages join through an entry point, and then work everywhere without an edit here."""

import json
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import drawn_evaluations
from federation.verbs.cost_histogram import VERB, CostHistogramRequest
from fedrouter.cli.main import app
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.middleware.validation import Checked
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import OPEN, PrivacyPolicy
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.federation.verbs.hello import VERB as HELLO
from fedrouter.federation.verbs.registry import GROUP, VERBS, verb_named
from fedrouter.testing.verbs import check_verb

MODELS = ("model-0", "model-1", "model-2")
REQUEST = CostHistogramRequest(MODELS, np.geomspace(1e-7, 1, 8))
NAME = VERB.name


class Loaded:
    """An entry point that is loaded already, as a test module has no name to import it by."""

    def __init__(self, name, value):
        self.name, self.value, self._object = name, f"a_package:{name}", value

    def load(self):
        return self._object


@pytest.fixture
def provide(monkeypatch):
    """Offers objects as entry points of another package, by name."""

    def offer(**objects):
        points = [Loaded(name, value) for name, value in objects.items()]
        monkeypatch.setattr("fedrouter.registry.entry_points", lambda group: points if group == GROUP else [])
        VERBS.reload()

    yield offer
    monkeypatch.undo()
    VERBS.reload()


@pytest.fixture
def plugin(provide):
    provide(cost_histogram=VERB)


def clients(privacy=OPEN):
    return [Client(f"client-{seed}", drawn_evaluations(queries=100, seed=seed), privacy) for seed in range(4)]


def test_a_verb_of_another_package_keeps_the_contract(plugin):
    assert list(VERBS)[-1] == NAME
    check_verb(VERB, drawn_evaluations(queries=200), REQUEST)


def test_it_passes_validation_secure_sums_and_checkpoints(plugin, tmp_path):
    plain = LocalFederation(clients()).ask(NAME, REQUEST)
    total = reduce(add, plain.values())
    assert total.count.sum() == 400
    checked = Checked(LocalFederation(clients()))
    assert np.array_equal(Secure(checked).ask(NAME, REQUEST)[EVERYONE].count, total.count)
    assert not checked.dropped
    first = Checkpointed(LocalFederation(clients()), tmp_path).ask(NAME, REQUEST)
    again = Checkpointed(LocalFederation(clients()[:0]), tmp_path).ask(NAME, REQUEST)
    assert [reply.count.tolist() for reply in first.values()] == [reply.count.tolist() for reply in again.values()]


def test_privacy_policies_hold_for_it(plugin, tmp_path):
    with pytest.raises(Refused, match="secure aggregation only"):
        LocalFederation(clients(PrivacyPolicy(secure_only=True))).ask(NAME, REQUEST)


def test_the_audit_shows_it(plugin, tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    Client("one", drawn_evaluations(), OPEN, journal).answer(NAME, REQUEST)
    journal.close()
    shown = CliRunner().invoke(app, ["audit", str(tmp_path), "--show", "1", "--json"])
    assert shown.exit_code == 0, shown.output
    assert np.sum(json.loads(shown.stdout)["arrays"]["count"]["values"]) == 60


def test_a_message_of_a_package_that_is_gone_is_still_listed_by_the_audit(provide, tmp_path):
    provide(cost_histogram=VERB)
    journal = Journal(tmp_path / "journal.sqlite")
    Client("one", drawn_evaluations(), OPEN, journal).answer(NAME, REQUEST)
    journal.close()
    provide()
    listed = CliRunner().invoke(app, ["audit", str(tmp_path), "--json"])
    assert json.loads(listed.stdout)["sent"][0]["verb"] == NAME
    shown = CliRunner().invoke(app, ["audit", str(tmp_path), "--show", "1", "--json"])
    assert shown.exit_code != 0
    assert f"unknown verb '{NAME}'" in str(shown.exception)


def test_a_verb_of_this_package_cannot_be_replaced(provide, caplog):
    provide(hello=replace(HELLO, purpose="Another hello."))
    assert list(VERBS).count("hello") == 1
    assert VERBS["hello"] is HELLO
    assert "'hello' of a_package:hello is ignored: the name is taken" in caplog.text


def test_an_entry_point_that_is_no_verb_or_another_one_is_refused(provide):
    provide(use=CostHistogramRequest, other=VERB)
    with pytest.raises(BadInput, match=r"verb 'use' of a_package:use: cannot be used \(expected a Verb"):
        verb_named("use")
    with pytest.raises(BadInput, match="its record is named 'cost_histogram'"):
        verb_named("other")
