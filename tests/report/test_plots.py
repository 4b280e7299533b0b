"""Figures of frontiers: what is drawn, and that the axes show where the routers are."""

import numpy as np
import pytest

from conftest import full_grid
from fedrouter.baselines import ModelMeans, baselines
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.protocol import Comparison, Curves
from fedrouter.frontier import mix, sweep
from fedrouter.report.plots import PER, draw_frontier, draw_frontiers


@pytest.fixture(scope="module")
def grid():
    return full_grid()


@pytest.fixture(scope="module")
def router(grid):
    """A frontier between the models and the oracle."""
    noise = np.random.default_rng(1).normal(0, 0.5, grid.accuracy.shape)
    return sweep(Estimates(grid.pool, grid.accuracy + noise, grid.cost), grid)


def line(panel, words):
    return next(one for one in panel.get_lines() if str(one.get_label()).startswith(words))


def test_one_router_is_drawn_with_the_coin_toss_and_their_aiq(grid, router):
    (panel,) = draw_frontier(router, grid, "Auto").axes
    toss = mix(grid)
    drawn = line(panel, "coin toss between single models")
    # Flat to the most expensive model, even if that is not the best.
    assert drawn.get_xdata() == pytest.approx([*(toss.cost * PER), toss.singles.budgets[1] * PER])
    assert drawn.get_ydata() == pytest.approx([*toss.accuracy, toss.accuracy[-1]])
    assert drawn.get_label().endswith(f"{toss.measures.aiq:.3f}")
    assert line(panel, "Auto").get_label() == f"Auto, {router.measures.aiq:.3f}"
    assert line(panel, "Auto").get_marker() == "o"


def test_the_axes_are_cut_to_the_router_and_not_to_the_oracle(grid, router):
    (panel,) = draw_frontier(router, grid, "Auto").axes
    low, high = panel.get_ylim()
    assert low < router.accuracy.min() < router.accuracy.max() < high
    assert high < line(panel, "oracle").get_ydata().max()


def test_every_family_has_a_panel_with_every_client(grid, router):
    means = ModelMeans.of(Evaluations.from_grid(grid, np.eye(200)))
    own = {"client-1": router}
    ways = {
        "federated": Curves({"federated": router}, own),
        "centralized": Curves({"centralized": router}, own),
        "local": Curves({"client-1": router, "client-2": mix(grid)}, own),
    }
    families = ("kmeans", "mlp")
    curves = {way: dict.fromkeys(families, found) for way, found in ways.items()}
    comparison = Comparison(grid.pool, [], curves, baselines(means, grid), dict.fromkeys(families), {}, {})
    panels = draw_frontiers(comparison).axes
    assert [panel.get_title(loc="left") for panel in panels] == ["K-Means router", "MLP router"]
    grey = [one for one in panels[0].get_lines() if one.get_linewidth() == 0.9]
    assert len(grey) == 2
    assert (
        line(panels[0], "each client alone, mean")
        .get_label()
        .endswith(f"{np.mean([router.measures.aiq, mix(grid).measures.aiq]):.3f}")
    )
