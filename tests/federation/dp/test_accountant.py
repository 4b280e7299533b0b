"""The privacy budget: what is spent is added up as dp-accounting does, lasts, and is never overspent."""

from __future__ import annotations

import json

import dp_accounting
import dp_accounting.pld
import dp_accounting.rdp
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.dp.accountant import ORDERS, Event, PrivacyAccountant, multiplier_for, spent_epsilon
from fedrouter.federation.dp.repeats import LIFETIME, released_again
from fedrouter.federation.families.registry import family
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import CLEAR, DifferentialPrivacy, PrivacyPolicy
from fedrouter.federation.verbs.cost_scale import CostScaleRequest, LogCostSums
from fedrouter.federation.verbs.hello import NO_BUDGET, HelloRequest
from fedrouter.pool import ModelPool

MODELS = ("model-0", "model-1", "model-2")
COST_SCALE = CostScaleRequest(MODELS)
DELTA = 1e-5


def noisy_client(noise, memory=None, rows=60):
    return Client("one", drawn_evaluations(rows), PrivacyPolicy(differential_privacy=noise, secure_only=False), memory)


def spent(client):
    return client.accountant.spent()


def test_epsilon_is_that_of_dp_accounting():
    events = (Event("gaussian", 4.0), Event("laplace", 5.0, 3), Event("gaussian", 4.0))
    accountant = dp_accounting.rdp.RdpAccountant(ORDERS)
    accountant.compose(dp_accounting.GaussianDpEvent(4.0), 2)
    accountant.compose(dp_accounting.LaplaceDpEvent(5.0), 3)
    assert spent_epsilon(events, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-12)


@pytest.mark.parametrize(
    "events",
    [
        (Event("gaussian", 4.0, 2),),
        (Event("gaussian", 0.7),),
        (Event("gaussian", 5.0), Event("gaussian", 30.0, 40)),
    ],
)
def test_epsilon_is_never_below_the_exact_one_and_not_far_above(events):
    accountant = dp_accounting.pld.PLDAccountant()
    for event in events:
        accountant.compose(dp_accounting.GaussianDpEvent(event.multiplier), event.times)
    exact = accountant.get_epsilon(DELTA)
    assert exact <= spent_epsilon(events, DELTA) * 1.001
    assert spent_epsilon(events, DELTA) <= 1.25 * exact


def test_laplace_answers_cost_at_most_what_pure_privacy_adds_up_to():
    assert spent_epsilon((Event("laplace", 2.0, 3),), DELTA) <= 1.5 * 1.001


def test_a_multiplier_for_a_budget_uses_it_up_and_no_more():
    multiplier = multiplier_for(2.0, DELTA, 7)
    assert 1.9 < spent_epsilon((Event("gaussian", multiplier),) * 7, DELTA) <= 2.0


def test_what_would_go_over_budget_is_refused_before_it_is_made_and_says_why():
    noise = DifferentialPrivacy(2.0, multiplier=multiplier_for(2.0, DELTA, 2))
    client = noisy_client(noise)
    for models in (MODELS, MODELS[:1]):
        client.answer("cost_scale", CostScaleRequest(models))
    before = spent(client)
    assert 1.9 < before <= 2.0
    with pytest.raises(
        Refused, match=r"budget of epsilon 2 at delta 1e-05, of which 1\.\d+ is spent.*bring it to 2\.[1-9]"
    ):
        client.answer("cost_scale", CostScaleRequest(MODELS[1:]))
    assert spent(client) == before


def test_an_identical_noisy_answer_is_released_again_at_no_cost_and_survives_a_restart(tmp_path):
    noise = DifferentialPrivacy(2.0, multiplier=multiplier_for(2.0, DELTA, 1))
    replies = []
    for _ in range(3):
        journal = Journal(tmp_path / "journal.sqlite")
        client = noisy_client(noise, journal)
        replies.append(client.answer("cost_scale", COST_SCALE))
        journal.close()
    assert len({reply.total.limbs.tobytes() for reply in replies}) == 1
    journal = Journal(tmp_path / "journal.sqlite")
    assert [bool(entry.spent) for entry in journal.entries()] == [True, False, False]
    assert len(noisy_client(noise, journal).accountant.events()) == 1


def test_an_answer_of_yesterday_is_made_anew_and_charged_again_whether_or_not_rows_have_changed():
    memory, clock, made = ShortMemory(), [0.0], []

    def answered(rows):
        def make():
            made.append(rows)
            return Client("one", rows, CLEAR).answer("cost_scale", COST_SCALE)

        return released_again(memory, "cost_scale", COST_SCALE, LogCostSums, make, lambda: clock[0])

    old, new = drawn_evaluations(seed=1), drawn_evaluations(seed=2)
    first = answered(old)
    clock[0] = LIFETIME - 1
    assert answered(new).total.limbs.tobytes() == first.total.limbs.tobytes()
    clock[0] = LIFETIME + 1
    assert answered(new).total.limbs.tobytes() != first.total.limbs.tobytes()
    assert made == [old, new]


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_client_says_how_many_answers_its_budget_still_allows(answers):
    noise = DifferentialPrivacy(2.0, multiplier=multiplier_for(2.0, DELTA, 3))
    client = noisy_client(noise)
    for number in range(3 - answers):
        client.answer("cost_scale", CostScaleRequest(MODELS[: number + 1]))
    assert client.answer("hello", HelloRequest()).answers == answers
    assert Client("open", drawn_evaluations()).answer("hello", HelloRequest()).answers == NO_BUDGET


def test_the_budget_survives_a_restart(tmp_path):
    noise = DifferentialPrivacy(2.0, multiplier=multiplier_for(2.0, DELTA, 2))
    for models in (MODELS, MODELS[:1]):
        journal = Journal(tmp_path / "journal.sqlite")
        noisy_client(noise, journal).answer("cost_scale", CostScaleRequest(models))
        journal.close()
    with pytest.raises(Refused, match="privacy budget"):
        noisy_client(noise, Journal(tmp_path / "journal.sqlite")).answer("cost_scale", CostScaleRequest(MODELS[1:]))


def test_the_record_of_what_was_sent_says_what_it_cost(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    client = noisy_client(DifferentialPrivacy(9.0, multiplier=3.0), journal)
    client.answer("cost_scale", COST_SCALE)
    client.answer("cost_scale", CostScaleRequest(MODELS[:1]))
    client.answer("cost_scale", CostScaleRequest(MODELS[:1]))
    first, second, third = (entry.spent for entry in journal.entries())
    assert json.loads(first)["events"] == [{"mechanism": "gaussian", "multiplier": 3.0, "times": 1}]
    assert json.loads(second)["epsilon"] == pytest.approx(spent(client), abs=1e-5)
    assert third == ""  # answered from memory


def test_an_answer_that_was_cut_off_counts_as_given(tmp_path, monkeypatch):
    memory = ShortMemory()
    client = noisy_client(DifferentialPrivacy(9.0, multiplier=3.0), memory)

    def power_cut(*parts):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedrouter.federation.client.noised", power_cut)
    with pytest.raises(KeyboardInterrupt):
        client.answer("cost_scale", COST_SCALE)
    assert PrivacyAccountant("one", DifferentialPrivacy(9.0), memory).events() == (Event("gaussian", 3.0),)


def test_two_processes_of_a_client_share_one_budget(tmp_path):
    noise = DifferentialPrivacy(2.0, multiplier=multiplier_for(2.0, DELTA, 1))
    first, second = (noisy_client(noise, Journal(tmp_path / "journal.sqlite")) for _ in range(2))
    first.answer("cost_scale", COST_SCALE)
    with pytest.raises(Refused, match="privacy budget"):
        second.answer("cost_scale", CostScaleRequest(MODELS[:1]))


def test_what_leaves_under_masks_is_paid_for_too():
    client = noisy_client(DifferentialPrivacy(9.0, multiplier=3.0))
    client.answer("cost_scale", COST_SCALE, hidden=True)
    assert spent(client) == spent_epsilon((Event("gaussian", 3.0),), DELTA)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"delta": 1.0}, {"multiplier": -1.0}, {"mechanism": "uniform"}, {"largest_cost": 1e-7}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(BadInput, match=f"differential privacy, .*{next(iter(wrong))}"):
        DifferentialPrivacy(**({"epsilon": 1.0} | wrong))


def test_a_family_states_exactly_the_questions_that_are_charged():
    noise = PrivacyPolicy(differential_privacy=DifferentialPrivacy(1e6), secure_only=False)
    members = [Client(each, drawn_evaluations(60, seed=number), noise) for number, each in enumerate("ab")]
    kind = family("query_blind")
    kind.learn(LocalFederation(members), ModelPool(MODELS), kind.settings())
    stated = kind.charged_questions(kind.settings())
    assert len(set(stated)) == len(stated)
    assert {len(member.accountant.events()) for member in members} == {len(stated)}
