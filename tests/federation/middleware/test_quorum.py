"""Below the quorum a run ends with a clear word, and goes on from there later."""

import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.federation import Federation
from fedrouter.federation.middleware.quorum import Quorum, QuorumLost
from fedrouter.pool import ModelPool

POOL = ModelPool(["model-0", "model-1", "model-2"])


def federation(names="abcd"):
    return LocalFederation(Client(name, drawn_evaluations(seed=ord(name))) for name in names)


class Silent(Federation):
    """A federation of which some clients do not answer some verbs."""

    def __init__(self, federation, **silent):
        self.federation, self.silent = federation, silent

    def clients(self):
        return self.federation.clients()

    def ask(self, verb, payload, to=None):
        to = self.clients() if to is None else to
        return self.federation.ask(verb, payload, [name for name in to if name not in self.silent.get(verb, "")])


REQUEST = CostsRequest(POOL.names)


@pytest.mark.parametrize(("silent", "least"), [("", 4), ("a", 3), ("abc", 1)])
def test_enough_answers_go_through_as_they_are(silent, least):
    asked = Quorum(Silent(federation(), costs=silent), least)
    assert list(asked.ask("costs", REQUEST)) == [name for name in "abcd" if name not in silent]
    assert asked.clients() == ("a", "b", "c", "d")


@pytest.mark.parametrize(("silent", "least"), [("a", 4), ("ab", 3), ("abcd", 1)])
def test_too_few_answers_end_the_run_with_how_many_there_were(silent, least):
    with pytest.raises(QuorumLost, match=rf"costs: {4 - len(silent)} of 4 clients answered, the quorum is {least}"):
        Quorum(Silent(federation(), costs=silent), least).ask("costs", REQUEST)
    assert issubclass(QuorumLost, FedrouterError)


def test_where_fewer_are_asked_than_the_quorum_all_of_them_must_answer():
    assert list(Quorum(federation(), 3).ask("costs", REQUEST, ["a", "b"])) == ["a", "b"]
    with pytest.raises(QuorumLost, match=r"1 of 2"):
        Quorum(Silent(federation(), costs="b"), 3).ask("costs", REQUEST, ["a", "b"])


def test_a_quorum_of_nobody_is_refused():
    with pytest.raises(BadInput, match="quorum"):
        Quorum(federation(), 0)
