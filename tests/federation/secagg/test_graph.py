"""The graph of masks: its bounds by formula and by simulation, and that nobody chooses a client's peers but itself."""

import random
from itertools import combinations
from math import comb

import pytest

from fedrouter.federation.secagg.graph import (
    COLLUDING,
    COMPLETE,
    RECOVERY,
    SECRECY,
    cut_off,
    edges,
    lost,
    neighbors,
    peers,
    pick_holders,
    threshold,
)


@pytest.mark.parametrize("clients", [17, 24, 60, 100, 300, 1000])
def test_the_number_of_peers_keeps_both_bounds_and_one_less_does_not(clients):
    picked = peers(clients)
    assert cut_off(clients, picked) <= SECRECY
    assert lost(clients, picked) <= RECOVERY
    assert any(cut_off(clients, fewer) > SECRECY or lost(clients, fewer) > RECOVERY for fewer in range(2, picked))


def test_small_federations_have_the_complete_graph_and_large_ones_grow_with_the_logarithm():
    assert [peers(clients) for clients in (3, 10, COMPLETE)] == [2, 9, COMPLETE - 1]
    # Ten times as many clients: a few peers more.
    assert peers(1000) < peers(10_000) < 1.3 * peers(1000) < 0.12 * 1000


def exact_tail(among, marked, drawn, least):
    hits = sum(comb(marked, hit) * comb(among - marked, drawn - hit) for hit in range(least, drawn + 1))
    return hits / comb(among, drawn)


@pytest.mark.parametrize(("clients", "picked"), [(20, 6), (40, 11), (100, 33)])
def test_the_bound_on_cut_off_sets_is_the_formula_in_its_docstring(clients, picked):
    least = threshold(picked + 1) - 1
    expected = sum(
        min(1.0, comb(clients, size) * exact_tail(clients - 1, clients // COLLUDING + size - 1, picked, least) ** size)
        for size in range(1, clients // 4 + 1)
    )
    assert cut_off(clients, picked) == pytest.approx(expected, rel=1e-9)


def can_be_cut_off(picks, colluding, largest):
    """Whether some set of honest clients relies on nobody but itself and the colluding ones, by trying all sets."""
    honest = sorted(set(picks) - colluding)
    for size in range(1, largest + 1):
        for chosen in combinations(honest, size):
            close = colluding | set(chosen)
            if all(len(picks[name] & close) >= threshold(len(picks[name]) + 1) - 1 for name in chosen):
                return True
    return False


@pytest.mark.parametrize("picked", [3, 5, 7])
def test_simulated_graphs_are_cut_off_no_more_often_than_the_bound_says(picked):
    """With so few clients and peers it happens often enough to be counted."""
    clients, runs, draw = 15, 400, random.Random(picked)
    colluding = set(range(clients // COLLUDING))
    found = 0
    for _ in range(runs):
        others = {own: [name for name in range(clients) if name != own] for own in range(clients)}
        picks = {own: set(draw.sample(others[own], picked)) for own in range(clients)}
        found += can_be_cut_off(picks, colluding, clients // 4)
    bound = cut_off(clients, picked)
    assert found / runs <= bound + 3 * (bound * max(0.0, 1 - bound) / runs) ** 0.5
    assert found or bound < 0.05  # the simulation can fail


def test_simulated_dropouts_lose_a_client_no_more_often_than_the_bound_says():
    clients, picked, runs, draw = 40, 5, 2000, random.Random(1)
    found = 0
    for _ in range(runs):
        gone = set(draw.sample(range(clients), clients // 10))
        found += any(
            len(set(draw.sample([n for n in range(clients) if n != own], picked)) - gone) < threshold(picked + 1)
            for own in range(clients)
        )
    assert 0 < found / runs <= lost(clients, picked) + 0.03


def test_holders_are_picked_at_random_and_include_the_client_itself():
    names = [f"client-{number:02}" for number in range(40)]
    picks = [pick_holders("client-07", names) for _ in range(60)]
    assert all("client-07" in pick and len(pick) == peers(40) + 1 and pick == sorted(pick) for pick in picks)
    assert len({tuple(pick) for pick in picks}) == 60
    assert set().union(*picks) == set(names)


def test_neighbors_are_the_same_from_both_sides():
    draw = random.Random(2)
    names = [f"client-{number}" for number in range(12)]
    holders = {name: sorted({name, *draw.sample(names, 3)}) for name in names}
    near = edges(holders)
    for name in names:
        picked_by = [other for other in names if name in holders[other]]
        assert neighbors(name, holders[name], picked_by, names) == sorted(near[name])
        assert all(name in near[other] for other in near[name])
