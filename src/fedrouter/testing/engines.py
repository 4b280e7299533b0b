"""Contract suite for engines: an algorithm must run on every engine and give the same result to the bit.

An engine is checked through a function that makes a federation of clients with given rows::

    @pytest.mark.parametrize("check", ENGINE_CHECKS)
    def test_my_engine_keeps_the_contract(check):
        check(MyFederation)

The reference is :class:`~fedrouter.engines.local.LocalFederation`, which keeps every client in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.kmeans import ClusterRequest, StatisticsRequest
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Message
from fedrouter.testing.samples import POOL, sample_evaluations, sample_rows

MakeEngine = Callable[[Mapping[str, Evaluations]], Federation]
NAMES = ("beta", "alpha", "gamma")
REQUESTS: Mapping[str, Any] = {
    "cluster": ClusterRequest(clusters=4, restarts=1, iterations=10, seed=3),
    "statistics": StatisticsRequest(sample_evaluations(5, seed=9).embeddings, POOL.names, (2, 3), 2),
    "costs": CostsRequest(POOL.names),
}
"""One request of each kind of reply: arrays, exact sums."""
SMALL: Mapping[str, Mapping[str, Any]] = {
    "kmeans": {"k_local": 4, "k_global": 5},
    "mlp": {"rounds": 2, "hidden": (8,)},
}
"""Settings that keep the check of a family short, and few features, for which few rows are enough."""


def check_clients_are_listed_in_order(make: MakeEngine) -> None:
    """``clients()`` gives the names, sorted."""
    assert tuple(make(sample_rows(*NAMES)).clients()) == tuple(sorted(NAMES))
    assert tuple(make({}).clients()) == ()


def check_replies_are_in_order(make: MakeEngine) -> None:
    """Replies are sorted by client name, in whatever order clients are listed, asked or answer."""
    federation = make(sample_rows(*NAMES))
    assert list(federation.ask("costs", REQUESTS["costs"])) == sorted(NAMES)
    assert list(federation.ask("costs", REQUESTS["costs"], ["gamma", "alpha"])) == ["alpha", "gamma"]


def check_only_those_named_are_asked(make: MakeEngine) -> None:
    """``to`` limits who is asked; nobody is asked if it is empty."""
    federation = make(sample_rows(*NAMES))
    assert list(federation.ask("costs", REQUESTS["costs"], ["beta"])) == ["beta"]
    assert dict(federation.ask("costs", REQUESTS["costs"], [])) == {}


def check_replies_arrive_unchanged(make: MakeEngine) -> None:
    """A reply has the same type, arrays and scalars as the client gave, whatever carried it."""
    ours, reference = make(sample_rows(*NAMES)), LocalFederation(sample_rows(*NAMES))
    for verb, request in REQUESTS.items():
        replies, expected = ours.ask(verb, request), reference.ask(verb, request)
        assert list(replies) == list(expected)
        for name, reply in replies.items():
            assert type(reply) is type(expected[name])
            assert content(reply) == content(expected[name]), f"{verb}: the reply of {name} was changed on its way"


def check_a_request_is_not_changed(make: MakeEngine) -> None:
    """Asking twice is asking the same: an engine does not change the request that it sends."""
    federation, before = make(sample_rows(*NAMES)), content(REQUESTS["statistics"])
    first, second = (federation.ask("statistics", REQUESTS["statistics"]) for _ in range(2))
    assert content(REQUESTS["statistics"]) == before
    assert {name: content(reply) for name, reply in first.items()} == {
        name: content(reply) for name, reply in second.items()
    }


def check_families_learn_the_same_router(make: MakeEngine, families: Iterable[str] | None = None) -> None:
    """Every family, or those named, learns the same router as on the reference, to the bit."""
    for name in FAMILIES if families is None else families:
        family = FAMILIES[name]
        settings = family.settings(**SMALL.get(name, {}))
        ours, reference = (
            family.learn(each(sample_rows(*NAMES, queries=300)), POOL, settings, 7) for each in (make, LocalFederation)
        )
        assert _arrays(ours.arrays()) == _arrays(reference.arrays()), f"{name}: another router than the reference"


ENGINE_CHECKS: tuple[Callable[[MakeEngine], None], ...] = (
    check_clients_are_listed_in_order,
    check_replies_are_in_order,
    check_only_those_named_are_asked,
    check_replies_arrive_unchanged,
    check_a_request_is_not_changed,
    check_families_learn_the_same_router,
)


def check_engine(make: MakeEngine) -> None:
    """Run every check of the suite."""
    for check in ENGINE_CHECKS:
        check(make)


def content(message: Message) -> tuple[dict[str, Any], str]:
    """A message in a form that can be compared: every array to the bit, and the scalars."""
    arrays, scalars = message.pack()
    return _arrays(arrays), scalars


def _arrays(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
