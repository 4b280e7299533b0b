"""Progress of every exchange: who was asked, and who answered everything that was asked of it."""

from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.runs.server import Watched
from fedrouter.federation.federation import Middleware, Question
from fedrouter.federation.verbs.hello import HelloRequest


class Scripted(Middleware):
    """Clients of which some answer some questions."""

    def __init__(self, *answers):
        self.answers = answers

    def clients(self):
        return ("alpha", "beta", "gamma")

    def ask_all(self, questions, to=None):
        return [dict.fromkeys(names, "reply") for names in self.answers]


def exchange(tmp_path, questions, *answers):
    lines = []
    Watched(Scripted(*answers), ProgressLog(tmp_path, lines.append)).ask_all(questions)
    return lines[0]["asked"], lines[0]["answered"], lines[0]["verbs"]


def test_a_client_counts_that_answered_all_its_questions(tmp_path):
    both = [Question("hello", HelloRequest()), Question("keys", HelloRequest())]
    everyone = ("alpha", "beta", "gamma")
    assert exchange(tmp_path, both, everyone, everyone) == (3, 3, ["hello", "keys"])
    assert exchange(tmp_path, both, everyone, ("beta",)) == (3, 1, ["hello", "keys"])


def test_a_question_for_one_client_is_missed_at_no_other(tmp_path):
    own = [Question("hello", HelloRequest(), (name,)) for name in ("alpha", "beta")]
    assert exchange(tmp_path, own, ("alpha",), ("beta",)) == (2, 2, ["hello"])
    assert exchange(tmp_path, own, (), ("beta",)) == (2, 1, ["hello"])
