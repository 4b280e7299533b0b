"""Robust aggregation: a liar among honest clients moves little, and honest clients are left as they are."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import drawn_evaluations, family_params
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation
from fedrouter.federation.middleware.validation import Checked, fault
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.robust.middleware import Robust, RobustSettings
from fedrouter.federation.robust.updates import EVERYONE, capped_updates, clipped, median, trimmed_mean
from fedrouter.federation.robust.winsorizing import Bounds, brought_in, weighted_median, winsorized
from fedrouter.federation.verbs.statistics import CellStatistics, StatisticsRequest
from fedrouter.federation.verbs.train import TrainRequest, Update
from fedrouter.frontier import sweep
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale
from fedrouter.testing.poison import ATTACKS, UPDATES, LossyFederation, poisoned

POOL = ModelPool(["model-0", "model-1", "model-2"])
PRESET = RobustSettings.preset()
SMALL = {"mlp": {"rounds": 2, "hidden": (16,), "participation": 1.0}, "mf": {"rounds": 2, "participation": 1.0}}
UNIT = Bounds(0.0, 1.0, 0.05)
CENTRES = np.eye(4, 8, dtype=np.float32)


def honest(clients=5, queries=300):
    return [Client(f"client-{seed}", drawn_evaluations(queries=queries, seed=seed), OPEN) for seed in range(clients)]


def arrays(router):
    return {name: array.tobytes() for name, array in router.arrays().items()}


def learned(federation, name):
    family = FAMILIES[name]
    return family.learn(federation, POOL, family.settings(**SMALL.get(name, {})))


class Scripted(Federation):
    """A federation that gives these replies."""

    def __init__(self, replies):
        self.replies = replies

    def clients(self):
        return tuple(sorted(self.replies))

    def ask(self, verb, payload, to=None):
        return self.replies


@pytest.mark.parametrize("name", family_params("auto", "mf"))
def test_with_nothing_asked_for_every_bit_stays(name):
    plain = learned(LocalFederation(honest(3)), name)
    assert arrays(learned(Robust(LocalFederation(honest(3)), RobustSettings()), name)) == arrays(plain)


@pytest.mark.parametrize("name", ["kmeans", "linear", "query_blind"])
def test_clients_that_agree_are_left_as_they_are(name):
    """Copies of one client under other names, for families whose clients do not draw by their name."""
    rows = drawn_evaluations(queries=300)
    same = [Client(f"client-{place}", rows, OPEN) for place in range(4)]
    federations = (LocalFederation(same), Robust(LocalFederation(same), RobustSettings(2.0, winsorized=True)))
    if name == "kmeans":
        request = StatisticsRequest(CENTRES, POOL.names)
        plain, robust = (federation.ask("statistics", request) for federation in federations)
        assert all(
            robust[who].pack()[0][part].tobytes() == array.tobytes()
            for who, reply in plain.items()
            for part, array in reply.pack()[0].items()
        )
    else:
        plain, robust = (learned(federation, name) for federation in federations)
        assert arrays(plain) == arrays(robust)


@pytest.mark.parametrize("name", family_params("auto", "mf"))
def test_every_family_learns_under_the_preset_and_replies_stay_believable(name):
    believed = []

    class Watched(Robust):
        def ask(self, verb, payload, to=None):
            replies = super().ask(verb, payload, to)
            believed.extend((verb, fault(verb, payload, reply)) for reply in replies.values())
            return replies

    router = learned(Watched(LocalFederation(honest()), PRESET), name)
    assert np.isfinite(router.estimate(drawn_evaluations(seed=9).embeddings).accuracy).all()
    assert {(verb, reason) for verb, reason in believed if reason} == set()


@pytest.mark.parametrize("name", ["kmeans", "mlp", "linear"])
def test_the_order_of_replies_plays_no_part(name):
    class Backwards(LocalFederation):
        def ask(self, verb, payload, to=None):
            return dict(reversed(super().ask(verb, payload, to).items()))

    forwards, backwards = (learned(Robust(kind(honest()), PRESET), name) for kind in (LocalFederation, Backwards))
    assert arrays(forwards) == arrays(backwards)


def test_two_clients_cannot_be_robust():
    with pytest.raises(BadInput, match=r"2 clients answered; robust aggregation .* needs at least 3"):
        learned(Robust(LocalFederation(honest(2)), PRESET), "kmeans")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"most_rows": 0.5}, "most_rows"),
        ({"clip": float("inf")}, "clip"),
        ({"trim": 0.5}, "trim"),
        ({"trim": 0.1, "median": True}, "choose one"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(BadInput, match=said):
        RobustSettings(**wrong)


def statistics_of(clients):
    return LocalFederation(clients).ask("statistics", StatisticsRequest(CENTRES, POOL.names))


def model_means(replies, sums="accuracy"):
    table = reduce(add, (reply.table(len(CENTRES), len(POOL)) for reply in replies.values()))
    return getattr(table, sums).totals().sum(axis=0) / table.count.sum(axis=0)


def test_a_cap_scales_counts_and_sums_down_together():
    replies = dict(statistics_of(honest()))
    greedy = replies["client-4"]
    many = {
        part: ExactSums(value.limbs * 1000).carried()
        for part, value in vars(greedy).items()
        if isinstance(value, ExactSums)
    }
    replies["client-4"] = CellStatistics(greedy.cell, greedy.count * 1000, **many)
    federation = Robust(Scripted(replies), RobustSettings(most_rows=2.0))
    capped = federation.ask("statistics", StatisticsRequest(CENTRES, POOL.names))
    rows = sorted(int(reply.count.sum()) for reply in replies.values())
    assert capped["client-4"].count.sum() <= 2 * rows[2]
    assert capped["client-4"].count.sum() > 1.9 * rows[2]
    for part in many:
        before, after = (getattr(reply, part).totals() / reply.count for reply in (greedy, capped["client-4"]))
        assert np.allclose(before, after, atol=1e-9)
    for name in list(replies)[:4]:
        assert capped[name] is replies[name]


def lying(reply, accuracy, dollars):
    """The same counts, with every answer this accurate and this dear."""
    n = reply.count
    values = (accuracy, accuracy**2, dollars, np.log(max(dollars, 1e-9)), np.log(max(dollars, 1e-9)) ** 2)
    return CellStatistics(reply.cell, n, *(ExactSums.from_totals(n * value) for value in values))


@given(accuracy=st.floats(0, 1), exponent=st.floats(-9, 3))
@settings(max_examples=30, deadline=None)
def test_no_lie_of_one_client_in_five_moves_any_model_far(accuracy, exponent):
    replies = dict(statistics_of(honest()))
    truth, cost = model_means(replies), model_means(replies, "log_cost")
    replies["client-2"] = lying(replies["client-2"], accuracy, 10.0**exponent)
    robust = Robust(Scripted(replies), PRESET).ask("statistics", StatisticsRequest(CENTRES, POOL.names))
    assert np.abs(model_means(robust) - truth).max() < 0.08
    assert np.abs(model_means(robust, "log_cost") - cost).max() < 0.2
    request = StatisticsRequest(CENTRES, POOL.names)
    assert all(fault("statistics", request, reply) is None for reply in robust.values())


def test_a_client_that_nobody_supports_counts_for_nothing():
    replies = dict(statistics_of(honest(queries=1500)))
    replies["client-2"] = lying(replies["client-2"], 0.0, 1e-4)
    robust = Robust(Scripted(replies), PRESET).ask("statistics", StatisticsRequest(CENTRES, POOL.names))
    assert {name: bool(reply.count.sum()) for name, reply in robust.items()} == {
        name: name != "client-2" for name in replies
    }


@given(values=st.lists(st.floats(-10, 10), min_size=1, max_size=9))
def test_a_weighted_median_with_equal_weights_is_the_median(values):
    column = np.array(values)[:, None]
    assert weighted_median(column, np.ones_like(column))[0] == pytest.approx(np.median(values))


def test_values_without_weight_are_not_in_the_median():
    values, weights = np.array([[5.0], [1.0], [2.0], [3.0]]), np.array([[0.0], [1.0], [1.0], [1.0]])
    assert weighted_median(values, weights)[0] == 2.0
    assert np.isnan(weighted_median(values, weights * 0)[0])


@given(away=st.floats(-100, 100), most=st.floats(0, 10))
def test_a_deviation_is_kept_or_brought_within_and_never_turned_round(away, most):
    found = float(brought_in(np.array(away), np.array(most)))
    assert found == away if abs(away) <= most else abs(found) <= most
    assert found * away >= 0


@given(
    count=st.lists(st.integers(0, 50), min_size=24, max_size=24),
    mean=st.lists(st.floats(0, 1), min_size=24, max_size=24),
)
@settings(max_examples=50, deadline=None)
def test_winsorized_means_stay_means_of_possible_values(count, mean):
    shape = (4, 2, 3)
    n, y = np.array(count).reshape(shape), np.array(mean).reshape(shape)
    within, variance, trust = winsorized(n, y, y * (1 - y), UNIT)
    assert ((within >= 0) & (within <= 1)).all()
    assert (variance >= 0).all()
    assert (variance <= within * (1 - within) + 1e-12)[n > 0].all()
    assert (within == y)[n == 0].all()
    assert ((trust >= 0) & (trust <= 1)).all()


def test_what_only_one_client_knows_is_left_to_it():
    count = np.zeros((4, 1, 1), np.int64)
    count[0] = 100
    mean = np.full((4, 1, 1), 0.93)
    assert (winsorized(count, mean, mean * 0, UNIT)[0] == mean).all()


# --- Updates --------------------------------------------------------------------------------------------------------


def request(weights):
    scale = CostScale(*(np.ones(1, kind) for kind in (np.int64, float, float, float)))
    return TrainRequest(("a",), weights, scale, 1, 128, 1e-3, 0.0, 1.0, 0.0, 0)


def updates(steps, rows=None):
    zero = {"accuracy.weight": np.zeros(steps.shape[1], np.float32)}
    found = {
        f"client-{place}": Update(
            {"accuracy.weight": step.astype(np.float32)}, 100 if rows is None else rows[place], 0.1
        )
        for place, step in enumerate(steps)
    }
    return request(zero), found


STEPS = np.random.default_rng(0).normal(size=(6, 40))


def test_an_update_is_clipped_to_the_length_that_the_median_allows():
    steps = STEPS.copy()
    steps[2] *= 100
    asked, replies = updates(steps)
    after = clipped(asked.returned_weights(), replies, 1.5)
    lengths = {name: np.linalg.norm(reply.weights["accuracy.weight"]) for name, reply in after.items()}
    most = 1.5 * np.median(np.linalg.norm(steps, axis=1))
    assert lengths["client-2"] == pytest.approx(most, rel=1e-5)
    assert all(after[name] is replies[name] for name in replies if name != "client-2")
    turned = after["client-2"].weights["accuracy.weight"] @ steps[2] / most / np.linalg.norm(steps[2])
    assert turned == pytest.approx(1.0, rel=1e-5)


def test_rows_claimed_beyond_the_cap_weigh_nothing():
    _, replies = updates(STEPS, rows=[100, 100, 100, 100, 10**6, 0])
    assert [reply.rows for reply in capped_updates(replies, 2.0).values()] == [100, 100, 100, 100, 200, 0]


@given(lie=st.floats(-1e6, 1e6))
@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("middle", [median, lambda replies: trimmed_mean(replies, 0.2)])
def test_every_weight_of_a_robust_mean_lies_among_those_of_honest_clients(middle, lie):
    steps = STEPS.copy()
    steps[3] = lie
    _, replies = updates(steps)
    together = middle(replies)[EVERYONE]
    others = np.delete(steps, 3, axis=0).astype(np.float32)
    assert (together.weights["accuracy.weight"] >= others.min(axis=0) - 1e-6).all()
    assert (together.weights["accuracy.weight"] <= others.max(axis=0) + 1e-6).all()
    assert together.rows == 600


def test_updates_that_agree_come_out_as_they_are():
    _, replies = updates(np.repeat(STEPS[:1], 5, axis=0))
    for middle in (median, lambda all_: trimmed_mean(all_, 0.2)):
        same = middle(replies)[EVERYONE].weights["accuracy.weight"]
        assert np.allclose(same, STEPS[0].astype(np.float32), rtol=1e-6)


def test_a_round_in_which_nobody_has_rows_is_passed_on():
    _, replies = updates(STEPS, rows=[0] * 6)
    assert trimmed_mean(replies, 0.2) is replies


# --- Poisoned clients -----------------------------------------------------------------------------------------------


def area(clients, family, seed, attack=None, robust=False):
    """``aiq`` of the router that ten clients learn, one of whom makes an attack."""
    everyone = Evaluations.concatenate([client.train for client in clients])
    liar = clients[seed % len(clients)].name
    wire = LossyFederation(
        poisoned(attack, client.name, client.train, everyone)
        if attack and client.name == liar
        else Client(client.name, client.train)
        for client in clients
    )
    federation = Robust(Checked(wire), PRESET) if robust else wire
    router = FAMILIES[family].learn(federation, everyone.pool, FAMILIES[family].settings(), seed)
    test = Evaluations.concatenate([client.test for client in clients])
    return sweep(router.estimate(test.embeddings), test.grid()).measures.aiq


def test_a_favoured_model_is_not_sold_to_the_simulated_world(world):
    clients = partition(world.evaluations, seed=1)
    truth = area(clients, "kmeans", 1)
    assert area(clients, "kmeans", 1, "inflated accuracy") < truth - 0.05
    assert area(clients, "kmeans", 1, "inflated accuracy", robust=True) > truth - 0.02


SEEDS = range(3)
SPLITS = {"kmeans": 12, "mlp": 3}
"""One split of K-Means moves by as much as the bound allows, because clusters fall elsewhere. Over twelve splits the
standard error of the mean is below a third of the bound."""


@pytest.mark.slow
@pytest.mark.parametrize("family", SPLITS)
def test_one_poisoned_client_of_ten_moves_the_area_by_less_than_a_hundredth(real_data, family):
    """Every attack, on the mean over splits: of the same router, once with the client's poison and once without."""
    evaluations = read(real_data / "mmlu_pro.parquet").evaluations
    splits = [(seed, partition(evaluations, seed=seed)) for seed in range(SPLITS[family])]
    truth = np.array([area(clients, family, seed, robust=True) for seed, clients in splits])
    for attack in ATTACKS:
        if family == "kmeans" and attack in UPDATES:
            continue
        moved = np.array([area(clients, family, seed, attack, robust=True) for seed, clients in splits]) - truth
        assert abs(moved.mean()) < 0.01, f"{attack}: {moved}"


@pytest.mark.slow
def test_what_it_costs_when_all_are_honest_is_small(real_data):
    evaluations = read(real_data / "mmlu_pro.parquet").evaluations
    for family in ("kmeans", "mlp"):
        price = [
            area(clients, family, seed, robust=True) - area(clients, family, seed)
            for seed, clients in ((seed, partition(evaluations, seed=seed)) for seed in SEEDS)
        ]
        assert np.mean(price) > -0.01
