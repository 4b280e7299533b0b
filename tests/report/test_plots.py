"""Figures of frontiers: what is drawn, and that the axes show where the routers are."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from conftest import full_grid
from fedrouter.baselines import ModelMeans, baselines
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.protocol import Comparison, Curves
from fedrouter.experiments.sheet import PER
from fedrouter.frontier import mix, sweep, verdict_of
from fedrouter.report.comparison import frontier_sheet
from fedrouter.report.plots import draw_verdict
from fedrouter.report.style import save


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


def test_a_verdict_is_drawn_with_its_interval_its_tradeoff_and_the_single_models(grid):
    rows = Evaluations.from_grid(grid, np.eye(len(grid)))
    noise = np.random.default_rng(1).normal(0, 0.5, grid.accuracy.shape)
    answers = Estimates(grid.pool, grid.accuracy + noise, grid.cost)

    class Fixed:
        """Estimates of the queries whose embeddings are unit vectors."""

        def estimate(self, embeddings):
            some = np.argmax(embeddings, axis=1)
            return Estimates(grid.pool, answers.accuracy[some], answers.cost[some])

    verdict = verdict_of(rows, lambda _: Fixed())
    (panel,) = draw_verdict(verdict).axes
    curve = line(panel, "router")
    assert sorted(curve.get_xdata()) == pytest.approx(sorted(point.cost * PER for point in verdict.frontier))
    assert f"λ = {verdict.tradeoff:.3g}" in line(panel, "quality 0.95").get_label()
    toss = line(panel, "coin toss")
    assert toss.get_ydata()[-1] == pytest.approx(max(one.accuracy for one in verdict.singles))
    assert min(toss.get_xdata()) == pytest.approx(min(one.cost for one in verdict.singles) * PER)
    assert {text.get_text() for text in panel.texts} == set(grid.pool.names)


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_picture_says_in_words_what_it_shows(tmp_path, form):
    save(Figure(), tmp_path / f"picture.{form}", "Keeps 95%, as <a> & b")
    written = (tmp_path / f"picture.{form}").read_bytes()
    assert b"Keeps 95%" in written
    save(Figure(), tmp_path / f"again.{form}", "Keeps 95%, as <a> & b")
    assert (tmp_path / f"again.{form}").read_bytes() == written


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
    panels = frontier_sheet(comparison).panels
    assert [panel.title for panel in panels] == ["K-Means router", "MLP router"]
    alone = [one for one in panels[0].lines if one.kind == "local"]
    assert len(alone) == 2
    assert alone[-1].area == pytest.approx(np.mean([router.measures.aiq, mix(grid).measures.aiq]))
