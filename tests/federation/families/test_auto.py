"""`auto`: the best blend by federated cross-validation, and query-blind where nothing beats it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.auto import NOTHING_TAUGHT, AutoSettings, blend, by_chance, evidence, learn
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Middleware, NothingToLearn
from fedrouter.federation.middleware.fold import WithoutFold
from fedrouter.federation.privacy.policy import CLEAR, OPEN
from fedrouter.federation.privacy.rows import FOLDS, PrivateRows, folds
from fedrouter.federation.verbs import score
from fedrouter.federation.verbs.cluster import ClusterRequest
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.blend import pack_routers, unpack_routers

POOL = ModelPool(["model-0", "model-1", "model-2"])


def federation(count=3, change=lambda rows: rows, **shape):
    return LocalFederation(
        Client(f"client-{s}", change(drawn_evaluations(seed=s, **shape)), OPEN) for s in range(count)
    )


def shuffled(rows: Evaluations) -> Evaluations:
    """The same rows with embeddings that say nothing."""
    embeddings = np.random.default_rng(5).permutation(rows.embeddings)
    return Evaluations(rows.pool, embeddings, rows.query, rows.model, rows.accuracy, rows.cost)


def test_where_queries_teach_nothing_it_falls_back_to_query_blind():
    notes = []
    router = learn(federation(queries=600, change=shuffled), POOL, callback=lambda step: notes.extend(step.notes))
    assert [part.family for part in router.parts] == ["query_blind"]
    assert notes == [NOTHING_TAUGHT]


def test_the_routers_of_a_question_are_made_once_for_all_clients(monkeypatch):
    """Each router fits its estimates when it is first asked; again at every client, that took most of the time."""
    together = federation(4, queries=30)
    router = FAMILIES["query_blind"].learn(together, POOL)
    made = []
    monkeypatch.setattr(score, "unpack_routers", lambda *given: made.append(1) or unpack_routers(*given))
    question = score.ScoreRequest(POOL.names, ("query_blind",), pack_routers([router]), fold=0)
    assert sum(reply.count for reply in together.ask("score", question).values()) > 0
    assert len(made) == 1


def best_blend(draw, truth, knows, others):
    """The gram of a reference without queries and of ``others`` that see the truth with noise, and their best blend."""
    seen = knows * truth[:, None] + 0.3 * draw.normal(size=(len(truth), others))
    errors = np.column_stack([np.zeros(len(truth)), seen]) - truth[:, None]
    gram = errors.T @ errors
    return gram, blend(gram)


@pytest.mark.parametrize("others", [1, 3])
def test_where_nothing_is_known_evidence_is_as_large_as_chance_says(others):
    draw = np.random.default_rng(0)
    found = []
    for _ in range(1500):
        gram, weights = best_blend(draw, draw.normal(size=300), 0.0, others)
        found.append(by_chance(evidence(gram, 300, weights, 0), others))
    assert np.mean(np.array(found) <= 0.1) == pytest.approx(0.1, abs=0.025)
    assert np.mean(np.array(found) <= 0.01) == pytest.approx(0.01, abs=0.008)
    assert evidence(np.eye(2), 10, np.array([1.0, 0.0]), 0) == 0
    assert by_chance(0.0, others) == 1 - 0.5**others  # the rest of the time all of them are worse than nothing


def test_what_moves_toward_the_truth_is_evidence_even_if_it_needs_shrinking():
    """Half of its weight is right: the reduction of its error alone, in standard errors, was called chance."""
    draw = np.random.default_rng(1)
    truth = draw.normal(size=600)
    gram, weights = best_blend(draw, truth, 0.06, 1)
    assert 0.1 < weights[1] < 0.9
    assert by_chance(evidence(gram, 600, weights, 0), 1) < 0.01
    reduction = (gram[0, 0] - weights @ gram @ weights) / (2 * weights[1] * np.sqrt(gram[0, 0] / 600 * 0.3**2 * 600))
    assert reduction < 2.33


def test_where_queries_teach_something_query_blind_is_dropped():
    router = learn(federation(queries=600), POOL)
    assert "query_blind" not in [part.family for part in router.parts]


def test_a_family_that_is_clearly_best_gets_the_weight():
    """With two clusters for many directions, K-Means is hopeless where a linear router is right."""
    settings = AutoSettings(("kmeans", "linear"), settings={"kmeans": KMeansSettings(k_local=2, k_global=2)})
    router = learn(federation(queries=800), POOL, settings)
    weights = dict(zip([part.family for part in router.parts], router.weights, strict=True))
    assert weights["linear"] > 0.8


def test_folds_divide_a_clients_queries():
    own = PrivateRows("one", drawn_evaluations(queries=100, per_query=2), None)
    request = CostScaleRequest(POOL.names)
    inside = [own.of_models(replace(request, fold=fold), POOL.names, in_fold=True) for fold in range(FOLDS)]
    assert sum(map(len, inside)) == 200
    vectors = [{vector.tobytes() for vector in rows.embeddings} for rows in inside]
    assert len(set().union(*vectors)) == sum(map(len, vectors)) == 100
    outside = own.of_models(replace(request, fold=0), POOL.names)
    assert len(outside) == 200 - len(inside[0])
    assert not {vector.tobytes() for vector in outside.embeddings} & vectors[0]


def test_what_is_held_out_takes_no_part_in_learning():
    members = federation(queries=100)
    sizes = {
        fold: [
            reply.sizes.sum()
            for reply in WithoutFold(members, fold).ask("cluster", ClusterRequest(5, 1, 5, 0)).values()
        ]
        for fold in (-1, 0, 1)
    }
    held = {
        fold: [np.sum(folds(own._evaluations.embeddings, name) == fold) for name, own in members._clients.items()]
        for fold in (-1, 0, 1)
    }
    assert sizes == {fold: [100 - number for number in numbers] for fold, numbers in held.items()}
    assert all(10 < number < 30 for fold in (0, 1) for number in held[fold])


@given(st.integers(1, 5), st.integers(0, 1000))
def test_no_weights_do_better_than_the_blend(size, seed):
    draw = np.random.default_rng(seed)
    errors = draw.normal(size=(50, size)) * draw.uniform(0.5, 2, size) + draw.normal(size=(50, 1))
    gram = errors.T @ errors
    weights = blend(gram)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    least = weights @ gram @ weights
    for other in [*np.eye(size), *draw.dirichlet(np.ones(size), 30)]:
        assert least <= (other @ gram @ other) * 1.01  # parts below the least weight were dropped


class Exchanges(Middleware):
    """Lists the verbs of each exchange."""

    def __init__(self, federation):
        self.federation, self.exchanges = federation, []

    def clients(self):
        return self.federation.clients()

    def ask_all(self, questions, to=None):
        self.exchanges.append([question.verb for question in questions])
        return self.federation.ask_all(questions, to)


@pytest.mark.parametrize(("family", "exchanges"), [("kmeans", 2), ("query_blind", 2), ("linear", 2), ("kernel", 2)])
def test_a_family_without_training_takes_two_exchanges(family, exchanges):
    counted = Exchanges(federation())
    FAMILIES[family].learn(counted, POOL, FAMILIES[family].settings())
    assert len(counted.exchanges) == exchanges


def test_auto_takes_three_exchanges_and_asks_nothing_twice():
    """With the handshake of a run these are four; K-Means alone takes three."""
    counted = Exchanges(federation())
    learn(counted, POOL)
    assert [sorted(set(verbs)) for verbs in counted.exchanges] == [
        ["cluster", "cost_scale", "second_moment"],
        ["moments", "statistics"],
        ["score"],
    ]
    assert [len(verbs) for verbs in counted.exchanges] == [3 * 3, 4 * 3, 2]


def test_in_lockstep_auto_learns_the_parts_that_each_family_learns_alone():
    router = learn(federation(), POOL)
    for part in router.parts:
        alone = FAMILIES[part.family].learn(federation(), POOL, FAMILIES[part.family].settings())
        assert {name: array.tobytes() for name, array in part.arrays().items()} == {
            name: array.tobytes() for name, array in alone.arrays().items()
        }


def learn_with_notes(family, policy, **shape):
    """A router from clients with this policy, and the notes that its learning made."""
    clients = [Client(f"client-{s}", drawn_evaluations(seed=s, **shape), policy) for s in range(3)]
    notes = []
    router = FAMILIES[family].learn(
        LocalFederation(clients), POOL, FAMILIES[family].settings(), 0, lambda progress: notes.extend(progress.notes)
    )
    return router, notes


def test_a_family_that_no_client_may_contribute_to_says_so_and_is_no_constant():
    """It was a query-blind constant, with a weight in the blend."""
    with pytest.raises(NothingToLearn, match=r"none of 3 clients has .* to send second moments"):
        learn_with_notes("linear", CLEAR, queries=60, dimension=16)


def test_auto_leaves_out_what_cannot_be_learned_and_says_so():
    router, notes = learn_with_notes("auto", CLEAR, queries=60, dimension=16)
    assert {part.family for part in router.parts} <= {"query_blind", "kmeans"}
    assert any(note.startswith("linear: left out of the blend") for note in notes)
    assert any(note.startswith("kernel: left out of the blend") for note in notes)


def test_without_a_policy_nothing_is_left_out():
    _, notes = learn_with_notes("auto", OPEN, queries=60, dimension=16)
    assert notes == []


def test_an_unknown_candidate_is_refused():
    with pytest.raises(BadInput, match="candidates: expected query_blind"):
        AutoSettings(("oracle",))


def test_the_mlp_can_be_a_candidate():
    from fedrouter.federation.families.mlp import MLPSettings

    settings = AutoSettings(("query_blind", "mlp"), folds=1, settings={"mlp": MLPSettings(rounds=2, hidden=(16,))})
    router = learn(federation(queries=100), POOL, settings)
    assert {part.family for part in router.parts} <= {"query_blind", "mlp"}
