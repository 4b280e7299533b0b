"""Every middleware passes several questions on in one exchange, and treats each as if it had been asked alone."""

from dataclasses import replace

import pytest

from fedrouter.engines.local import LocalFederation
from fedrouter.federation.federation import Question
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.middleware.quorum import Quorum, QuorumLost
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.validation import Checked
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.testing.engines import NAMES, REQUESTS, content
from fedrouter.testing.samples import sample_clients

QUESTIONS = [Question(verb, request) for verb, request in REQUESTS.items()]


class Exchanges(LocalFederation):
    """The in-process engine, which lists the verbs of each exchange."""

    def __init__(self):
        super().__init__(sample_clients(*NAMES))
        self.exchanges = []

    def ask_all(self, questions, to=None):
        self.exchanges.append([question.verb for question in questions])
        return super().ask_all(questions, to)


MIDDLEWARE = {
    "validation": Checked,
    "quorum": lambda inner: Quorum(inner, 2),
    "subset": lambda inner: Subset(inner, ("alpha", "beta")),
}


def contents(answers):
    return [{name: content(reply) for name, reply in replies.items()} for replies in answers]


@pytest.mark.parametrize("name", MIDDLEWARE)
def test_questions_travel_together_and_are_treated_alone(name):
    together, apart = Exchanges(), Exchanges()
    answers = MIDDLEWARE[name](together).ask_all(QUESTIONS)
    one_by_one = MIDDLEWARE[name](apart)
    assert contents(answers) == contents(one_by_one.ask(each.verb, each.request) for each in QUESTIONS)
    assert together.exchanges == [list(REQUESTS)]
    assert apart.exchanges == [[verb] for verb in REQUESTS]


def test_a_checkpoint_resumes_in_the_middle_of_an_exchange(tmp_path):
    expected = contents(Checkpointed(Exchanges(), tmp_path).ask_all(QUESTIONS))
    for file in sorted(tmp_path.glob("*.safetensors"))[2:]:
        file.unlink()
    inner = Exchanges()
    again = Checkpointed(inner, tmp_path)
    assert contents(again.ask_all(QUESTIONS)) == expected
    assert inner.exchanges == [list(REQUESTS)[2:]]
    assert contents(Checkpointed(inner, tmp_path).ask_all(QUESTIONS)) == expected
    assert len(inner.exchanges) == 1


def test_a_quorum_counts_the_replies_to_each_question():
    class Shy(Exchanges):
        def ask(self, verb, payload, to=None):
            replies = super().ask(verb, payload, to)
            return {} if verb == "cluster" else replies

    with pytest.raises(QuorumLost, match="cluster: 0 of 3"):
        Quorum(Shy(), 1).ask_all(QUESTIONS)


def test_secure_aggregation_adds_up_sums_and_passes_the_rest_on_in_one_exchange():
    inner = Exchanges()
    answers = dict(zip(REQUESTS, Secure(inner).ask_all(QUESTIONS), strict=True))
    assert inner.exchanges[0] == ["hello", "cluster", "keys"]
    assert list(answers["hello"]) == list(answers["cluster"]) == sorted(NAMES)
    plain = LocalFederation(sample_clients(*NAMES)).ask("costs", REQUESTS["costs"])
    total = sum(reply.count for reply in plain.values())
    assert (answers["costs"][EVERYONE].count == total).all()


def test_a_question_may_be_for_some_of_the_clients_of_an_exchange():
    alone = replace(QUESTIONS[0], to=("beta",))
    answers = Checked(Quorum(Exchanges(), 2)).ask_all([alone, QUESTIONS[1]])
    assert [list(replies) for replies in answers] == [["beta"], sorted(NAMES)]


def test_a_quorum_does_not_count_what_one_client_alone_is_asked():
    class Absent(Exchanges):
        def ask(self, verb, payload, to=None):
            return {name: reply for name, reply in super().ask(verb, payload, to).items() if name != "beta"}

    alone = replace(QUESTIONS[0], to=("beta",))
    assert Quorum(Absent(), 1).ask_all([alone])[0] == {}
    with pytest.raises(QuorumLost, match="1 of 2 clients answered, the quorum is 2"):
        Quorum(Absent(), 2).ask_all([replace(alone, to=("alpha", "beta"))])
