"""A run that is killed goes on where it was, and what it makes is what it would have made."""

import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import ClusterRequest, KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation, Middleware
from fedrouter.federation.middleware.checkpoint import Checkpointed, digest
from fedrouter.federation.middleware.quorum import Quorum, QuorumLost
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.pool import ModelPool

POOL = ModelPool(["model-0", "model-1", "model-2"])
SMALL = {
    "kmeans": KMeansSettings(k_local=4, k_global=5),
    "mlp": MLPSettings(rounds=3, hidden=(8,)),
}


class Killed(BaseException):
    """Not an Exception, so that no code can go on after it, as after a signal."""


class Dying(Middleware):
    """A federation whose server dies after so many exchanges; it lists the verbs of each."""

    def __init__(self, federation, after=10**9):
        self.federation, self.after, self.asked = federation, after, []

    def clients(self):
        return self.federation.clients()

    def ask_all(self, questions, to=None):
        if len(self.asked) == self.after:
            raise Killed
        self.asked.append([question.verb for question in questions])
        return self.federation.ask_all(questions, to)


def federation(names=("a", "b", "c", "d")):
    return LocalFederation(Client(name, drawn_evaluations(seed=ord(name)), OPEN) for name in names)


def settings(family):
    return SMALL.get(family) or FAMILIES[family].settings()


def arrays(router):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in router.arrays().items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_killed_after_any_exchange_a_run_resumes_to_the_same_router_and_asks_nothing_twice(family, tmp_path):
    whole = Dying(federation())
    expected = arrays(FAMILIES[family].learn(whole, POOL, settings(family), 3))
    for place in {0, min(1, len(whole.asked) - 1), len(whole.asked) // 2, len(whole.asked) - 1}:
        folder = tmp_path / str(place)
        first = Dying(federation(), after=place)
        with pytest.raises(Killed):
            FAMILIES[family].learn(Checkpointed(first, folder), POOL, settings(family), 3)
        second = Dying(federation())
        router = FAMILIES[family].learn(Checkpointed(second, folder), POOL, settings(family), 3)
        assert arrays(router) == expected
        assert first.asked + second.asked == whole.asked


def test_growing_resumes_too(tmp_path):
    family = FAMILIES["mlp"]
    base = family.learn(federation(), ModelPool(POOL.names[:2]), settings("mlp"))
    new = ModelPool(POOL.names[2:])
    expected = arrays(family.add_models(base, federation(), new, settings("mlp")))
    with pytest.raises(Killed):
        family.add_models(base, Checkpointed(Dying(federation(), 3), tmp_path), new, settings("mlp"))
    assert arrays(family.add_models(base, Checkpointed(federation(), tmp_path), new, settings("mlp"))) == expected


def test_who_took_part_is_who_takes_part_after_a_kill(tmp_path):
    """Who is active in a round is drawn among the clients: a newcomer must not change the draw."""
    expected = arrays(FAMILIES["mlp"].learn(federation(), POOL, settings("mlp")))
    with pytest.raises(Killed):
        FAMILIES["mlp"].learn(Checkpointed(Dying(federation(), 2), tmp_path), POOL, settings("mlp"))
    resumed = Checkpointed(federation(("a", "b", "c", "d", "e")), tmp_path)
    assert arrays(FAMILIES["mlp"].learn(resumed, POOL, settings("mlp"))) == expected


def test_until_a_question_was_answered_nobody_takes_part_yet(tmp_path):
    with pytest.raises(Killed):
        FAMILIES["kmeans"].learn(Checkpointed(Dying(federation(("a",)), 0), tmp_path), POOL, settings("kmeans"))
    router = FAMILIES["kmeans"].learn(Checkpointed(federation(), tmp_path), POOL, settings("kmeans"))
    assert router.sums.count.sum() == 4 * 60


def test_a_list_of_clients_that_cannot_be_read_is_not_guessed(tmp_path):
    FAMILIES["kmeans"].learn(Checkpointed(federation(), tmp_path), POOL, settings("kmeans"))
    (tmp_path / "clients.json").write_text("[")
    with pytest.raises(BadInput, match=r"clients.json: cannot be read"):
        Checkpointed(federation(), tmp_path)


class Left(Federation):
    """A federation that some have left, who are still asked but do not answer."""

    def __init__(self, federation):
        self.federation = federation

    def clients(self):
        return self.federation.clients()

    def ask(self, verb, payload, to=None):
        return self.federation.ask(verb, payload, [name for name in to if name in self.clients()])


def test_a_client_that_is_gone_after_a_kill_is_one_that_does_not_answer(tmp_path):
    with pytest.raises(Killed):
        FAMILIES["kmeans"].learn(Checkpointed(Dying(federation(), 1), tmp_path), POOL, settings("kmeans"))
    resumed = Checkpointed(Left(federation(("a", "b", "c"))), tmp_path)
    router = FAMILIES["kmeans"].learn(resumed, POOL, settings("kmeans"))
    assert router.sums.count.sum() == 3 * 60


def test_after_a_kill_the_quorum_is_counted_among_those_who_took_part(tmp_path):
    with pytest.raises(Killed):
        FAMILIES["kmeans"].learn(Checkpointed(Dying(federation(), 1), tmp_path), POOL, settings("kmeans"))
    with pytest.raises(QuorumLost, match="1 of 4"):
        FAMILIES["kmeans"].learn(Checkpointed(Quorum(Left(federation(("a",))), 2), tmp_path), POOL, settings("kmeans"))


@pytest.mark.parametrize(
    ("family", "pool", "other", "seed"),
    [
        ("kmeans", POOL, settings("kmeans"), 4),
        ("kmeans", POOL, KMeansSettings(k_local=4, k_global=6), 3),
        ("kmeans", ModelPool(POOL.names[:2]), settings("kmeans"), 3),
        ("mlp", POOL, settings("mlp"), 3),
        ("bayes", POOL, settings("bayes"), 3),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(family, pool, other, seed, tmp_path):
    FAMILIES["kmeans"].learn(Checkpointed(federation(), tmp_path), POOL, settings("kmeans"), 3)
    with pytest.raises(BadInput, match="of another run"):
        FAMILIES[family].learn(Checkpointed(federation(), tmp_path), pool, other, seed)


@pytest.mark.parametrize("left", [0, 7, 100, -1])
def test_a_file_cut_short_is_asked_again_and_so_is_all_that_followed(left, tmp_path):
    expected = arrays(FAMILIES["mlp"].learn(Checkpointed(federation(), tmp_path), POOL, settings("mlp")))
    files = sorted(tmp_path.glob("*.safetensors"))
    files[2].write_bytes(files[2].read_bytes()[:left])
    again = Dying(federation())
    assert arrays(FAMILIES["mlp"].learn(Checkpointed(again, tmp_path), POOL, settings("mlp"))) == expected
    assert len(again.asked) == len(files) - 2


def test_what_a_kill_left_half_written_is_ignored_and_removed(tmp_path):
    half = tmp_path / "00000-cluster.safetensors.tmp"
    half.write_bytes(b"half")
    FAMILIES["kmeans"].learn(Checkpointed(federation(), tmp_path), POOL, settings("kmeans"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000-cluster.safetensors",
        "00001-statistics.safetensors",
        "clients.json",
    ]


def test_only_the_owner_may_read_a_checkpoint(tmp_path):
    FAMILIES["kmeans"].learn(Checkpointed(federation(), tmp_path / "run"), POOL, settings("kmeans"))
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()} == {0o600}


def test_a_fingerprint_tells_questions_apart():
    one = digest("cluster", ClusterRequest(3, 1, 5, 0), None)
    others = [
        digest("cluster", ClusterRequest(3, 1, 5, 1), None),
        digest("cluster", ClusterRequest(3, 1, 6, 0), None),
        digest("cluster", ClusterRequest(3, 1, 5, 0), ["a"]),
        digest("statistics", ClusterRequest(3, 1, 5, 0), None),
    ]
    assert one == digest("cluster", ClusterRequest(3, 1, 5, 0), None)
    assert len({one, *others}) == 5
