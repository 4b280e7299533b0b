"""What a member that lies in the secure sum does to the others' own routers: they stay as good as alone, nearly."""

from dataclasses import replace
from functools import cache, reduce
from operator import add

import numpy as np
import pytest

from fedrouter.data.partition import partition
from fedrouter.data.simulator import simulated_world
from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.evidence import Evidence
from fedrouter.federation.noise import Noise
from fedrouter.federation.total import impossible
from fedrouter.frontier import sweep
from fedrouter.release import COUNTS_SHARE, Release
from fedrouter.routers.bayes import BayesRouter

MEMBERS, JUDGED = 10, (1, 2, 3, 4)
MARGIN = 0.01
"""How much worse than alone, in `aiq` and in accuracy at λ = 0, a lie may make the mean of the judged members."""


@cache
def world():
    """Clients of the simulated world, their evidence's routers, and their exact releases."""
    clients = partition(simulated_world().evaluations, clients=MEMBERS, seed=0)
    features = map_of_width(clients[0].train.dimension)
    own = [BayesRouter.of(Evidence.of(clients[each].train, features)) for each in JUDGED]
    return clients, own, [Release.of(client.train, features) for client in clients]


def honest(release, model, pooled):
    return release


def praise(accuracy, cost, times):
    """Claim about a model, on many times the liar's queries at their usual features, an accuracy and a cost."""

    def of(release, model, pooled):
        mean = release.first.sum(axis=0) / release.first[:, 0].sum()
        rows = mean * times * world()[0][0].train.queries * UNIT
        first, products = release.first.copy(), release.products.copy()
        usual = pooled.products[model, 1, 0] / max(pooled.first[model, 0], 1) * COUNTS_SHARE
        first[model] = (rows * COUNTS_SHARE).astype(np.int64)
        products[model, 0] = (rows * accuracy).astype(np.int64)
        products[model, 1] = (rows * (usual if cost is None else cost)).astype(np.int64)
        return replace(release, first=first, products=products)

    return of


def upside_down(release, model, pooled):
    return replace(release, products=-release.products)


def total_of(lie, worst=True):
    """The noisy total in which the first member lies about the worst model, or the best."""
    exact = list(world()[2])
    pooled = reduce(add, exact)
    means = pooled.products[:, 0, 0] / np.maximum(pooled.first[:, 0], 1)
    exact[0] = lie(exact[0], int(means.argmin() if worst else means.argmax()), pooled)
    return reduce(add, (Noise(seed=place).on(each, MEMBERS) for place, each in enumerate(exact)))


def quality(routers):
    """Mean `aiq` and accuracy at λ = 0 of routers on their members' own tests."""
    found = []
    for place, router in zip(JUDGED, routers, strict=True):
        test = world()[0][place].test
        estimates, truth = router.estimate(test.embeddings), test.grid()
        best = truth.accuracy[np.arange(len(truth)), estimates.choose(0.0)].mean()
        found.append((sweep(estimates, truth).measures.aiq, best))
    return np.mean(found, axis=0)


def personal(total):
    return [own.beside(total - world()[2][place]) for place, own in zip(JUDGED, world()[1], strict=True)]


@pytest.mark.parametrize(
    ("lie", "worst"),
    [
        (praise(0.5, -0.5, 1), True),
        (praise(0.5, -0.5, 10), True),
        (praise(0.5, None, 10), True),
        (praise(-0.5, 0.5, 10), False),
        (upside_down, True),
    ],
    ids=["praise", "praise of ten times the queries", "of accuracy only", "slander of the best", "upside down"],
)
def test_a_lie_leaves_a_member_what_it_has_alone(lie, worst):
    routers = personal(total_of(lie, worst))
    assert (quality(routers) >= quality(world()[1]) - MARGIN).all()
    for router, own in zip(routers, world()[1], strict=True):
        assert router.evidence == own.evidence


def test_honest_members_gain():
    assert (quality(personal(total_of(honest))) > quality(world()[1]) + MARGIN).all()


def test_the_only_copy_of_a_model_says_nothing_unless_three_declare_it():
    total = total_of(praise(0.5, -0.5, 10))
    worst = int((total.products[:, 0, 0] / np.maximum(total.first[:, 0], 1)).argmax())
    name = total.pool.names[worst]
    routers = personal(total.without([name]))
    assert (quality(routers) > quality(world()[1])).all()


@pytest.mark.parametrize("largest", [2**47 - 1, 1000 * int(UNIT)], ids=["overflow", "garbage"])
def test_garbage_is_refused_as_sums_that_no_logs_have(largest):
    def garbage(release, model, pooled):
        draw = np.random.default_rng(0)
        return release.with_vector(draw.integers(-largest, largest, len(release.vector())), 0.0)

    rows = sum(client.train.queries for client in world()[0])
    assert impossible(total_of(garbage), rows, MEMBERS)
    assert not impossible(total_of(honest), rows, MEMBERS)
