"""Differential privacy of the single evaluation: sensitivities hold, noise is as stated, replies make sense."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.dp.mechanism import Part, noised, scale
from fedrouter.federation.dp.rows import NoisyRows
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.validation import Checked, fault
from fedrouter.federation.privacy.policy import CLEAR, OPEN, DifferentialPrivacy, PrivacyPolicy
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.federation.verbs.verb import NoisySums, RefusedUnderNoise
from fedrouter.pool import ModelPool

MODELS = ("model-0", "model-1", "model-2")
POOL = ModelPool(MODELS)
WIDTH = 8
DRAW = np.random.default_rng(0)
CENTRES = DRAW.normal(size=(4, WIDTH)).astype(np.float32)
REQUESTS = {"statistics": StatisticsRequest(CENTRES, MODELS), "cost_scale": CostScaleRequest(MODELS)}


def parts_of(verb, rows):
    return VERBS[verb].differential_privacy.parts(
        NoisyRows("one", rows, DifferentialPrivacy(1e9), None), REQUESTS[verb]
    )


def with_one_more(rows, embedding, model, accuracy, cost):
    return Evaluations(
        rows.pool,
        np.concatenate([rows.embeddings, embedding[None]]),
        np.append(rows.query, rows.queries),
        np.append(rows.model, model),
        np.append(rows.accuracy, accuracy),
        np.append(rows.cost, cost),
        time=np.append(rows.time, 86_400.0 * 20_001),
    )


def moved_no_further_than_stated(before: list[Part], after: list[Part]):
    for one, other in zip(before, after, strict=True):
        assert (one.bits, one.l2, one.l1, one.share) == (other.bits, other.l2, other.l1, other.share)
        step = np.ldexp((other.sums - one.sums).astype(np.float64).ravel(), -one.bits)
        assert np.linalg.norm(step) <= one.l2 * (1 + 1e-12)
        assert np.abs(step).sum() <= one.l1 * (1 + 1e-12)


extreme_evaluation = st.tuples(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=WIDTH, max_size=WIDTH),
    st.integers(0, 2),
    st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)),
    st.one_of(st.sampled_from([0.0, 1e-9, 1e-3, 1e6]), st.floats(0, 1e6)),
)


def test_every_verb_with_noise_on_sums_is_tested_here():
    assert set(REQUESTS) == {n for n, v in VERBS.items() if isinstance(v.differential_privacy, NoisySums)}


@pytest.mark.parametrize("verb", REQUESTS)
@given(extreme=extreme_evaluation)
@settings(max_examples=30, deadline=None)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_one_evaluation_moves_an_answer_no_further_than_stated(verb, extreme):
    rows = drawn_evaluations(40)
    more = with_one_more(rows, np.asarray(extreme[0], np.float32), *extreme[1:])
    before, after = (parts_of(verb, some) for some in (rows, more))
    moved_no_further_than_stated(before, after)
    moved_no_further_than_stated(after, before)


def test_a_bound_is_reached_so_it_is_not_just_loose():
    rows = drawn_evaluations(40)
    more = with_one_more(rows, np.eye(WIDTH, dtype=np.float32)[0], 1, 1.0, 1e6)
    for verb in ("statistics", "cost_scale"):
        before, after = (parts_of(verb, some) for some in (rows, more))
        for one, other in zip(before, after, strict=True):
            step = np.ldexp((other.sums - one.sums).astype(np.float64), -one.bits)
            assert np.linalg.norm(step) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_is_as_large_as_stated(mechanism):
    noise = DifferentialPrivacy(1.0, multiplier=3.0, mechanism=mechanism)
    part = Part(np.zeros(4000, np.int64), 20, l2=0.5, l1=2.0, share=0.25)
    (drawn,) = noised([part], noise)
    stated = {"gaussian": 3.0 * 0.5 / 0.5, "laplace": 3.0 * 2.0 / 0.25}[mechanism]
    assert scale(part, noise) == stated
    # The mean size of noise is √(2/π) deviations of a Gaussian, and the scale of a Laplacian.
    expected = stated * (np.sqrt(2 / np.pi) if mechanism == "gaussian" else 1.0)
    assert np.abs(drawn).mean() == pytest.approx(expected, rel=0.1)
    assert drawn.std() == pytest.approx(stated * (1.0 if mechanism == "gaussian" else np.sqrt(2)), rel=0.15)


def test_noise_is_different_each_time():
    part = Part(np.zeros(20, np.int64), 20, 1.0, 1.0, 1.0)
    first, second = (noised([part], DifferentialPrivacy(1.0))[0] for _ in range(2))
    assert not np.array_equal(first, second)


def test_parts_cannot_share_more_than_there_is():
    part = Part(np.zeros(1, np.int64), 20, 1.0, 1.0, 0.6)
    with pytest.raises(ValueError, match="share more"):
        noised([part, part], DifferentialPrivacy(1.0))


def test_with_hardly_any_noise_answers_are_the_exact_ones():
    rows = drawn_evaluations(200)
    noisy = Client(
        "one",
        rows,
        PrivacyPolicy(
            minimum_sizes=None, differential_privacy=DifferentialPrivacy(1e12, multiplier=1e-4), secure_only=False
        ),
    )
    plain = Client("one", rows, OPEN)
    found, exact = (client.answer("statistics", REQUESTS["statistics"]) for client in (noisy, plain))
    assert np.array_equal(found.cell, exact.cell)
    assert np.array_equal(found.count, exact.count)
    for name in ("accuracy", "accuracy_squares", "log_cost", "log_cost_squares"):
        assert getattr(found, name).totals() == pytest.approx(getattr(exact, name).totals(), rel=0.01, abs=0.05)
    assert found.cost.totals() == pytest.approx(exact.cost.totals(), rel=0.2)  # dollars are read off logarithms
    found, exact = (client.answer("cost_scale", REQUESTS["cost_scale"]) for client in (noisy, plain))
    assert found.squares.totals() == pytest.approx(exact.squares.totals(), rel=0.01)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("rows", [1, 60])
def test_a_server_believes_every_noisy_answer(mechanism, rows):
    for multiplier in (0.1, 1.0, 10.0, 100.0):
        noise = DifferentialPrivacy(1e9, multiplier=multiplier, mechanism=mechanism)
        for floors in (CLEAR.minimum_sizes, None):
            client = Client(
                "one",
                drawn_evaluations(rows),
                PrivacyPolicy(minimum_sizes=floors, differential_privacy=noise, secure_only=False),
            )
            for verb, request in REQUESTS.items():
                assert fault(verb, request, client.answer(verb, request)) is None, (verb, multiplier)


def test_empty_cells_get_noise_too():
    none = drawn_evaluations(40).take([])
    policy = PrivacyPolicy(
        minimum_sizes=None, differential_privacy=DifferentialPrivacy(1e9, multiplier=20.0), secure_only=False
    )
    # A client sends an identical answer again, so each is another's.
    sent = {len(Client("one", none, policy).answer("statistics", REQUESTS["statistics"]).cell) for _ in range(8)}
    assert max(sent) > 0


def test_cells_with_a_noisy_count_below_the_minimum_size_are_not_sent():
    client = Client(
        "one",
        drawn_evaluations(60),
        PrivacyPolicy(differential_privacy=DifferentialPrivacy(1e9, multiplier=1.0), secure_only=False),
    )
    assert client.answer("statistics", REQUESTS["statistics"]).count.min(initial=99) >= 5


def test_hello_tells_what_the_client_chose_to_tell():
    rows = drawn_evaluations(60)
    telling = Client(
        "one",
        rows,
        PrivacyPolicy(differential_privacy=DifferentialPrivacy(1.0, models=("model-0",)), secure_only=False),
    )
    assert telling.answer("hello", HelloRequest()).models == ("model-0",)
    assert telling.accountant.spent() == 0


def clients():
    noise = PrivacyPolicy(differential_privacy=DifferentialPrivacy(1e9, multiplier=1.0), secure_only=False)
    return [Client(f"client-{place}", drawn_evaluations(240, seed=place), noise) for place in range(3)]


def test_a_family_that_states_its_questions_learns_from_noisy_answers():
    assert [name for name in FAMILIES if FAMILIES[name].charged_questions] == ["query_blind"]
    family = FAMILIES["query_blind"]
    federation = Checked(LocalFederation(clients()))
    router = family.learn(federation, POOL, family.settings(), 0)
    estimates = router.estimate(drawn_evaluations(5).embeddings)
    assert not federation.dropped
    assert np.isfinite(estimates.accuracy).all()
    assert np.isfinite(estimates.cost).all()


@pytest.mark.parametrize("name", [name for name in FAMILIES if not FAMILIES[name].charged_questions])
def test_a_client_says_which_family_can_be_learned_with_noise(name):
    family = FAMILIES[name]
    with pytest.raises(Refused, match="--router query_blind"):
        family.learn(LocalFederation(clients()), POOL, family.settings(), 0)


def test_training_centroids_products_and_scores_are_refused_under_noise():
    refused = {name for name, verb in VERBS.items() if isinstance(verb.differential_privacy, RefusedUnderNoise)}
    assert refused == {"cluster", "train", "validate", "cost_totals", "second_moment", "moments", "score"}
