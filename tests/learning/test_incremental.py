"""Learning request by request: the same router, to the bit, as learning from all of them at once."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.learning.incremental import FIRST_ROWS, Learner, why_not_incremental
from fedrouter.learning.traffic import evaluations_of
from fedrouter.personalization import personalize
from fedrouter.pool import ModelPool
from learning.logs import ENCODER, learned, record, records_of

SUMS = ("kmeans", "query_blind", "linear", "kernel", "auto")


def parts(evaluations, size):
    rows = np.arange(len(evaluations))
    return [evaluations.take(rows[start : start + size]) for start in range(0, len(rows), size)]


def folded(router, batches):
    learner = Learner(router)
    for batch in batches:
        learner = learner.fold(batch)
    return learner.router


def same(one, other):
    ours, theirs = one.arrays(), other.arrays()
    return set(ours) == set(theirs) and all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


@pytest.fixture(scope="module")
def log():
    return drawn_evaluations(150, 4, seed=11)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_of_any_size_give_the_router_of_all_rows_at_once(name, size, log):
    base = learned(drawn_evaluations(120, 4, seed=1), name)
    log = log.take(np.arange(30 if size == 1 else 150))
    at_once = folded(base, [log])
    assert same(folded(base, parts(log, size)), at_once)
    assert not same(at_once, base)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("size", [1, 13])
def test_it_holds_for_models_that_the_router_has_never_seen(name, size, log):
    """Two models are new; one has too few rows and waits."""
    known = drawn_evaluations(120, 4, seed=1)
    base = learned(known.take(np.flatnonzero(known.model < 2)), name)
    rare = np.flatnonzero(log.model == 3)[FIRST_ROWS - 1 :]
    some = log.take(np.setdiff1d(np.arange(len(log)), rare)[: 60 if name in ("auto", "kernel", "linear") else None])
    learner, stepwise = Learner(base).fold(some), Learner(base)
    for part in parts(some, size):
        stepwise = stepwise.fold(part)
    assert same(stepwise.router, learner.router)
    assert stepwise.rows == learner.rows == len(some) - len(learner.waiting)
    usable = learner.router.estimate(log.embeddings[:1]).usable
    assert usable.tolist() == [True, True, True, False]
    assert set(learner.waiting.model) == {3}


@pytest.mark.parametrize("name", SUMS)
def test_folding_is_what_a_federation_does_when_a_client_joins(name, log):
    base = learned(drawn_evaluations(120, 4, seed=1), name)
    family = FAMILIES[name]
    joined = family.add_clients(base, LocalFederation([Client("new", log, OPEN)]), family.settings())
    assert same(folded(base, [log]), joined)


@pytest.mark.parametrize("name", SUMS)
def test_a_corrected_score_leaves_nothing_of_the_first_one(name, log):
    base = learned(drawn_evaluations(120, 4, seed=1), name)
    wrong = log.take([5])
    records = records_of(log)
    right, _ = evaluations_of([record(5, chosen="model-0", served=records[5].served, score=0.25)], log.pool, ENCODER)
    corrected = Learner(base).fold(log).unfold(wrong).fold(right)
    rest = log.take(np.setdiff1d(np.arange(len(log)), [5]))
    assert same(corrected.router, folded(base, [rest, right]))
    assert corrected.rows == len(log)


def test_what_was_never_learnt_cannot_be_taken_out(log):
    base = learned(drawn_evaluations(20, 4, seed=1))
    with pytest.raises(BadInput, match=r"not part of this router"):
        Learner(base).unfold(log)


@pytest.mark.slow
def test_a_router_without_sums_is_refused_with_what_to_do(log):
    pytest.importorskip("torch")
    with pytest.raises(BadInput, match=r"trained weights, not sums.*--personal"):
        Learner(learned(log, "mlp", rounds=1))


def test_a_personal_router_does_not_add_up(log):
    personal = personalize(learned(log), log, "kmeans", FAMILIES["kmeans"].settings())
    assert why_not_incremental(personal)
    assert why_not_incremental(personal.federated) is None


def test_records_become_the_evaluations_of_the_models_that_answered(log):
    records = records_of(log)
    found, left_out = evaluations_of(records, log.pool, ENCODER)
    assert not left_out
    assert same(folded(learned(log), [found]), folded(learned(log), [log]))


def test_records_that_teach_nothing_are_counted():
    pool = ModelPool(["model-0"])
    fallback = record(0, chosen="model-9", served="model-0", reason="named")
    records = [fallback, record(1, served="model-9"), record(2, served=None), record(3, score=None)]
    found, left_out = evaluations_of(records, pool, ENCODER)
    assert len(found) == 1
    assert left_out == {"model-9 is not in the pool": 1, "no model answered": 1, "no score": 1}
