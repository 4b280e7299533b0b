"""Contract suite for router families: what every family must do, in this package or in another one.

Each check is a function of a family that raises if the family breaks the contract::

    @pytest.mark.parametrize("check", FAMILY_CHECKS)
    def test_my_family_keeps_the_contract(check):
        check(FAMILY)

:func:`check_family` runs all of them. Checks of something that a family says it does not do pass at once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedrouter.baselines import UNSEEN
from fedrouter.bundle import Provenance, load, save
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation, single_owner
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.family import Family, NotASum
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import NothingToLearn, Progress
from fedrouter.personalization import personalize
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.registry import router_class
from fedrouter.testing.samples import drawn_evaluations

FamilyCheck = Callable[[Family], None]
POOL, NEW = ModelPool(["model-0", "model-1", "model-2"]), ModelPool(["model-3"])
QUERIES = drawn_evaluations(seed=99).embeddings
ROUNDS = {"mlp": 15}
"""Rounds after which a family has learned simple data; 60 unless named here, for families that have rounds."""


# ---- the record and its settings


def check_the_registry_has_it(family: Family) -> None:
    """The registry of families and that of router classes find it by its name."""
    assert FAMILIES[family.name] is family
    assert router_class(family.name) is family.router


def check_settings_survive_json(family: Family) -> None:
    """Settings written to a manifest come back equal, also those derived from them; unknown names are ignored."""
    settings = family.settings()
    for some in (settings, settings.single_client(), settings.client_local(), family.paper):
        if some is not None:
            again = type(some).from_json(json.loads(json.dumps(some.to_json())))
            assert type(some).from_json(again.to_json()) == again
            assert again.single_client().to_json() == some.single_client().to_json()
    assert family.settings.from_json({"no such setting": 1}).single_client() == settings.single_client()


# ---- learning and estimating


def check_estimates_are_valid(family: Family) -> None:
    """Accuracies are probabilities with standard errors, costs finite dollars, and every model is available."""
    estimates = _router(family).estimate(QUERIES)
    assert estimates.accuracy.shape == estimates.cost.shape == (len(QUERIES), 3)
    assert ((estimates.accuracy >= 0) & (estimates.accuracy <= 1)).all()
    assert (np.isfinite(estimates.cost) & (estimates.cost >= 0)).all()
    assert estimates.error is not None
    assert estimates.error.shape == (len(QUERIES), 3)
    assert ((estimates.error > 0) & (estimates.error < 1)).all()
    assert estimates.unavailable == (None, None, None)


def check_a_query_is_estimated_alone_as_in_a_batch(family: Family) -> None:
    """Up to rounding: no query changes what is estimated for another."""
    batch = _router(family).estimate(QUERIES)
    for size in (1, 2, 3, 5, 8, 13, 31, 47):
        for start in (0, 4):
            some = _router(family).estimate(QUERIES[start : start + size])
            assert np.allclose(some.accuracy, batch.accuracy[start : start + size], rtol=1e-9)
            assert np.allclose(some.cost, batch.cost[start : start + size], rtol=1e-9)


def check_other_embeddings_are_refused(family: Family) -> None:
    """Embeddings of another width, of too many dimensions, or with values that are not finite."""
    for queries in (np.zeros((2, 7)), np.full((1, 8), np.nan), np.zeros((1, 2, 8))):
        with _refused("embeddings: expected"):
            _router(family).estimate(queries)


def check_arrays_hold_the_whole_router(family: Family) -> None:
    router = _router(family)
    again = family.router.from_arrays(router.pool, router.arrays())
    assert type(again) is type(router)
    assert _same(again, router)
    assert np.array_equal(again.estimate(QUERIES).accuracy, router.estimate(QUERIES).accuracy)
    assert np.array_equal(again.estimate(QUERIES).cost, router.estimate(QUERIES).cost)


def check_arrays_that_do_not_fit_are_refused(family: Family) -> None:
    """A truncated array, an additional one, and arrays for another pool."""
    arrays = dict(_router(family).arrays())
    name, array = list(arrays.items())[-1]
    for pool, broken in (
        (POOL, arrays | {name: array[:-1]}),
        (POOL, {**arrays, "extra": array}),
        (ModelPool(["model-0"]), arrays),
    ):
        with _refused(family.name):
            family.router.from_arrays(pool, broken)


def check_the_same_seed_gives_the_same_bytes(family: Family) -> None:
    assert _same(_learn(family, _clients()), _router(family))


def check_another_seed_matters_if_the_record_says_so(family: Family) -> None:
    assert _same(_learn(family, _clients(), seed=1), _router(family)) == (not family.random)


def check_the_order_of_clients_does_not_matter(family: Family) -> None:
    assert _same(_learn(family, dict(reversed(_clients().items()))), _router(family))


def check_clients_may_order_their_models_differently(family: Family) -> None:
    members = {}
    for shift in range(3):
        rows = drawn_evaluations(seed=shift)
        names = rows.pool.names
        members[f"client-{shift}"] = rows.over(ModelPool([*names[shift:], *names[:shift]]))
    assert _same(_learn(family, members), _router(family))


def check_a_model_without_evaluations_is_not_chosen_or_known_to_be_unsure(family: Family) -> None:
    """Its estimates say why, and no λ chooses it; or they have a standard error that is larger than all others."""
    router = _learn(family, _clients(), ModelPool(["model-0", "unknown", "model-1", "model-2"]))
    estimates = router.estimate(QUERIES)
    if estimates.usable.all():
        assert estimates.error is not None
        assert (estimates.error[:, [1]] > estimates.error[:, [0, 2, 3]]).all()
        return
    assert estimates.unavailable == (None, UNSEEN, None, None)
    for tradeoff in (0, 1, 1e3, 1e7):
        assert "unknown" not in router.route(QUERIES, tradeoff)


def check_a_client_without_rows_is_no_error(family: Family) -> None:
    empty = {"client-9": drawn_evaluations().take([])}
    assert np.isfinite(_learn(family, _clients() | empty).estimate(QUERIES).accuracy).all()


def check_one_row_is_enough(family: Family) -> None:
    rows = drawn_evaluations().take([0])
    router = _learn(family, {"one": rows})
    usable = router.estimate(QUERIES).usable
    assert usable[rows.model[0]]
    if usable.sum() == 1:
        assert set(router.route(QUERIES, 1.0)) == {rows.pool.names[rows.model[0]]}


def check_without_rows_there_is_nothing_to_learn(family: Family) -> None:
    with _refused("nothing to learn", NothingToLearn):
        _learn(family, {"empty": drawn_evaluations().take([])})


def check_progress_ends_with_a_router(family: Family) -> None:
    """Steps are numbered without gaps, the last one is complete and carries the router."""
    seen: list[Progress] = []
    family.learn(LocalFederation(_clients()), POOL, family.settings(), 0, seen.append)
    assert [progress.step for progress in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].step == seen[-1].steps
    assert seen[-1].router is not None
    assert seen[-1].router.estimate(QUERIES).accuracy.shape == (len(QUERIES), 3)
    assert set(seen[-1].clients) <= {"client-0", "client-1", "client-2"}


def check_it_learns_simple_data(family: Family) -> None:
    """Each model is good in its own direction; a router of enough rows must tell the directions apart.

    A family whose estimates are the same for every query does not use the query, and passes.
    """
    if not np.ptp(_router(family).estimate(QUERIES).accuracy, axis=0).any():
        return
    many = {f"client-{seed}": drawn_evaluations(1500, dimension=4, seed=seed) for seed in range(2)}
    settings = family.settings().changed(rounds=ROUNDS.get(family.name, 60))
    router = family.learn(LocalFederation(many), POOL, settings)
    directions = np.eye(4, dtype=np.float32)[:3]
    for index in range(3):
        estimates = router.estimate(np.stack([directions[index], -directions[index]])).accuracy[:, index]
        assert estimates[0] > 0.75
        assert estimates[1] < 0.25


def check_a_single_client_can_learn(family: Family) -> None:
    """With the settings of one owner of all rows, and with those of the centralized and the local baseline."""
    rows = Evaluations.concatenate([drawn_evaluations(seed=seed) for seed in range(3)])
    settings = family.settings()
    for some in (
        settings.single_client(),
        family.pooled(settings, rows, 0, single_owner),
        family.alone(settings, rows, 0, single_owner),
    ):
        router = family.learn(single_owner("all", rows), POOL, some)
        assert np.isfinite(router.estimate(QUERIES).cost).all()


# ---- saving, personalizing


def check_a_bundle_holds_the_router(family: Family) -> None:
    """Saved and loaded, alone and as the federated half of a personal router, it gives the same estimates."""
    router = _router(family)
    personal = personalize(router, drawn_evaluations(seed=4), family.name, family.settings())
    for one in (router, personal):
        again = _reloaded(one)
        assert type(again) is type(one)
        assert _same(again, one)
        # Arrays that lie elsewhere in memory may be multiplied in another order.
        assert np.allclose(again.estimate(QUERIES).accuracy, one.estimate(QUERIES).accuracy, rtol=1e-9)
        assert np.allclose(again.estimate(QUERIES).cost, one.estimate(QUERIES).cost, rtol=1e-9)


def check_regions_and_counts_fit_the_router(family: Family) -> None:
    """What a router says about its training rows has the right shapes."""
    router = _router(family)
    regions, rows = router.regions(), router.rows_by_model()
    assert regions is None or (regions.ndim == 2 and regions.shape[1] == router.dimension)
    expected = sum(np.bincount(drawn_evaluations(seed=seed).model, minlength=3) for seed in range(3))
    assert rows is None or np.array_equal(rows, expected)


# ---- growing


def check_a_new_model_gets_estimates(family: Family) -> None:
    """It comes after the others, and its estimated cost is near its mean cost."""
    grown = _grown(family)
    assert grown.pool.names == (*POOL.names, *NEW.names)
    estimates = grown.estimate(QUERIES)
    assert estimates.unavailable == (None,) * 4
    assert ((estimates.accuracy >= 0) & (estimates.accuracy <= 1)).all()
    assert (np.isfinite(estimates.cost) & (estimates.cost > 0)).all()
    parts = [_rows(seed) for seed in range(3)]
    seen = np.concatenate([part.cost[part.model == 3] for part in parts]).mean()
    assert abs(estimates.cost[:, 3].mean() - seen) < 0.5 * seen


def check_a_model_that_nobody_used_cannot_be_added(family: Family) -> None:
    with _refused("nothing to learn", NothingToLearn):
        family.add_models(_founded(family), _founders(), ModelPool(["model-9"]), family.settings())


def check_a_model_cannot_be_added_twice(family: Family) -> None:
    with _refused("already in the pool: model-1"):
        family.add_models(_founded(family), _founders(), ModelPool(["model-1"]), family.settings())


def check_new_clients_change_the_router(family: Family) -> None:
    joined, before = _joined(family), _founded(family)
    assert joined.pool == POOL
    assert not np.array_equal(before.estimate(QUERIES).accuracy, joined.estimate(QUERIES).accuracy)


def check_a_client_of_another_width_is_refused(family: Family) -> None:
    with _refused("width"):
        narrow = single_owner("narrow", drawn_evaluations(dimension=5))
        family.add_clients(_founded(family), narrow, family.settings())


def check_removing_restores_the_router_exactly(family: Family) -> None:
    if isinstance(family.remove_clients, NotASum):
        with _refused(family.remove_clients.reason):
            family.removal()
        return
    assert not _same(_joined(family), _founded(family))
    assert _same(family.remove_clients(_joined(family), single_owner("client-3", _rows(3))), _founded(family))


def check_clients_join_and_leave_in_any_order(family: Family) -> None:
    if isinstance(family.remove_clients, NotASum):
        return
    first, second = (single_owner("x", drawn_evaluations(queries, seed=seed)) for queries, seed in ((80, 21), (90, 22)))
    settings = family.settings()
    both = family.add_clients(family.add_clients(_founded(family), first, settings), second, settings)
    assert _same(family.remove_clients(both, first), family.add_clients(_founded(family), second, settings))


def check_only_clients_that_joined_can_be_removed(family: Family) -> None:
    if isinstance(family.remove_clients, NotASum):
        return
    with _refused("not part of this router"):
        family.remove_clients(_founded(family), single_owner("stranger", drawn_evaluations(400, seed=77)))


FAMILY_CHECKS: tuple[FamilyCheck, ...] = (
    check_the_registry_has_it,
    check_settings_survive_json,
    check_estimates_are_valid,
    check_a_query_is_estimated_alone_as_in_a_batch,
    check_other_embeddings_are_refused,
    check_arrays_hold_the_whole_router,
    check_arrays_that_do_not_fit_are_refused,
    check_the_same_seed_gives_the_same_bytes,
    check_another_seed_matters_if_the_record_says_so,
    check_the_order_of_clients_does_not_matter,
    check_clients_may_order_their_models_differently,
    check_a_model_without_evaluations_is_not_chosen_or_known_to_be_unsure,
    check_a_client_without_rows_is_no_error,
    check_one_row_is_enough,
    check_without_rows_there_is_nothing_to_learn,
    check_progress_ends_with_a_router,
    check_it_learns_simple_data,
    check_a_single_client_can_learn,
    check_a_bundle_holds_the_router,
    check_regions_and_counts_fit_the_router,
    check_a_new_model_gets_estimates,
    check_a_model_that_nobody_used_cannot_be_added,
    check_a_model_cannot_be_added_twice,
    check_new_clients_change_the_router,
    check_a_client_of_another_width_is_refused,
    check_removing_restores_the_router_exactly,
    check_clients_join_and_leave_in_any_order,
    check_only_clients_that_joined_can_be_removed,
)


def check_family(family: Family, skip: Collection[str] = ()) -> None:
    """Run all checks on a family, except those whose names are in ``skip``."""
    for check in FAMILY_CHECKS:
        if check.__name__ not in skip:
            check(family)


# ---- routers that several checks share, each learned once


def _clients() -> dict[str, Evaluations]:
    return {f"client-{seed}": drawn_evaluations(seed=seed) for seed in range(3)}


def _learn(family: Family, members: Mapping[str, Evaluations], pool: ModelPool = POOL, seed: int = 0) -> Router:
    return family.learn(LocalFederation(members), pool, family.settings(), seed)


@lru_cache
def _router(family: Family) -> Router:
    return _learn(family, _clients())


def _rows(seed: int) -> Evaluations:
    """Evaluations of the pool and of the new model."""
    return drawn_evaluations(queries=200, models=4, seed=seed)


def _founders() -> LocalFederation:
    return LocalFederation({f"client-{seed}": _rows(seed) for seed in range(3)})


@lru_cache
def _founded(family: Family) -> Router:
    """The router before it grows."""
    return family.learn(_founders(), POOL, family.settings())


@lru_cache
def _grown(family: Family) -> Router:
    """The router with a new model."""
    return family.add_models(_founded(family), _founders(), NEW, family.settings())


@lru_cache
def _joined(family: Family) -> Router:
    """The router with a new client."""
    return family.add_clients(_founded(family), single_owner("client-3", _rows(3)), family.settings())


def _reloaded(router: Router) -> Router:
    with tempfile.TemporaryDirectory() as folder:
        encoder = EncoderIdentity("drawn", router.dimension, True)
        return load(save(Path(folder) / "bundle", router, encoder, Provenance("drawn", "", 0, 1, [], {}))).router


def _same(one: Router, other: Router) -> bool:
    """Whether two routers have the same state, to the bit."""
    ours, theirs = one.arrays(), other.arrays()
    return set(ours) == set(theirs) and all(_bytes(ours[name]) == _bytes(theirs[name]) for name in ours)


def _bytes(array: npt.NDArray[np.generic]) -> tuple[tuple[int, ...], str, bytes]:
    return array.shape, str(array.dtype), array.tobytes()


@contextmanager
def _refused(message: str, kind: type[Exception] = BadInput) -> Iterator[None]:
    """The block must raise this error with this text in its message."""
    said: str | None = None
    try:
        yield
    except kind as error:
        said = str(error)
    assert said is not None, f"expected {kind.__name__} with {message!r}; nothing was raised"
    assert message in said, f"expected {message!r} in the error, got {said!r}"
