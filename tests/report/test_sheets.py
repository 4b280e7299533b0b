"""Sheets as they come out: legible in print and in grey, panels that do not collide, the same bytes every time."""

import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from fedrouter.experiments.sheet import Bubbles, Line, Panel, Sheet
from fedrouter.report.sheets import KINDS, draw
from fedrouter.report.style import write

X = np.linspace(0, 2, 60)
# Kinds that meet in a panel of some experiment.
TOGETHER = (
    ("federated", "local", "centralized", "personalized", "oracle", "mix", "query_blind"),
    ("before", "after", "oracle"),
    ("one", "two", "three", "four", "five", "six"),
)


def frontier(kind, label="", height=0.5):
    return Line(label, X, height + 0.2 * np.sqrt(X), kind)


def grid(panels, columns):
    """A sheet of clients, each with two lines and their areas."""
    lines = [frontier("local", "local 0.612"), frontier("federated", "federated 0.734", 0.55)]
    return Sheet(
        "grid", "", [Panel(f"client-{index + 1:02d}, 1,234 queries", lines) for index in range(panels)], columns
    )


def cloud(count):
    return np.random.default_rng(0).normal(size=(2, count))


def grey(color):
    return sum(int(color[index : index + 2], 16) * weight for index, weight in ((1, 0.299), (3, 0.587), (5, 0.114)))


def shown_texts(figure):
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("kinds", TOGETHER)
def test_kinds_that_meet_differ_by_more_than_colour(kinds):
    assert len({KINDS[kind].color for kind in kinds}) == len(kinds)
    for index, one in enumerate(kinds):
        for other in kinds[index + 1 :]:
            first, second = KINDS[one], KINDS[other]
            dashes, widths = first.dash != second.dash, max(first.width, second.width) / min(first.width, second.width)
            assert dashes or widths > 1.5, f"{one} and {other} look alike in grey"
            assert first.marker != second.marker
            assert dashes or abs(grey(first.color) - grey(second.color)) > 30


@pytest.mark.parametrize(("panels", "columns", "inches"), [(1, 1, 7.3), (2, 2, 7.3), (3, 3, 7.3), (10, 5, 10.5)])
def test_letters_are_at_least_eight_points_at_the_width_of_a_page(panels, columns, inches):
    figure = draw(grid(panels, columns), "data.parquet, encoder")
    assert figure.get_figwidth() <= inches
    assert min(text.get_fontsize() for text in shown_texts(figure)) >= 8


@pytest.mark.parametrize(("panels", "columns"), [(2, 2), (3, 3), (7, 4), (10, 5)])
def test_panels_and_titles_do_not_collide(panels, columns):
    figure = draw(grid(panels, columns), "note")
    renderer = FigureCanvasAgg(figure).get_renderer()
    drawn = [axes for axes in figure.axes if axes.axison]
    assert len(drawn) == panels
    boxes = [axes.get_tightbbox(renderer) for axes in drawn]
    for index, box in enumerate(boxes):
        for other in boxes[index + 1 :]:
            width = min(box.x1, other.x1) - max(box.x0, other.x0)
            height = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert width < 1 or height < 1


def test_a_legend_tells_areas_and_leaves_out_what_has_no_label():
    lines = [
        frontier("local", "each client alone, mean 0.612"),
        frontier("local"),
        frontier("federated", "federated, 0.7"),
    ]
    figure = draw(Sheet("one", "", [Panel("MLP router", lines)]))
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "federated, 0.7",
        "each client alone, mean 0.612",
    ]
    assert len(axes.lines) == 3


def test_a_band_shows_the_spread_and_few_points_are_marked():
    values = np.arange(5.0)
    line = Line("area", values, values, "one", low=values - 1, high=values + 1)
    (axes,) = draw(Sheet("one", "", [Panel("p", [line], "rounds T", "area", log_x=False, log_y=True)])).axes
    assert len(axes.collections) == 1
    assert axes.lines[0].get_marker() == "o"
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("rounds T", "area", "log")


def test_points_of_a_sweep_are_marked_but_not_those_of_a_reference():
    lines = [frontier("federated", "federated"), Line("oracle", X, X, "oracle", reference=True)]
    (axes,) = draw(Sheet("one", "", [Panel("p", lines)])).axes
    swept, oracle = axes.lines
    assert (swept.get_marker(), oracle.get_marker()) == ("o", "None")
    assert 0 < swept.get_markersize() < 4


def test_axes_are_cut_to_the_routers_and_their_bands():
    oracle = Line("oracle", X, 10 * X, "oracle", reference=True)
    router = Line("federated", X, 0.1 * X, "federated", low=0.1 * X - 0.5, high=0.1 * X + 0.5)
    (axes,) = draw(Sheet("one", "", [Panel("p", [oracle, router])])).axes
    low, high = axes.get_ylim()
    assert low < -0.5
    assert 0.7 < high < 1


def test_a_long_legend_stands_below_the_lines():
    lines = [Line(f"client-{number:02d}", X, 0.5 + 0 * X, "local", area=0.5) for number in range(10)]
    figure = draw(Sheet("one", "", [Panel(name, lines) for name in "ab"]))
    renderer = FigureCanvasAgg(figure).get_renderer()
    for axes in figure.axes:
        legend = axes.get_legend().get_window_extent(renderer)
        assert legend.y1 <= axes.get_window_extent(renderer).y0
        assert legend.x1 - legend.x0 < figure.bbox.width / 2
    assert next(text.get_text() for text in figure.axes[0].get_legend().get_texts()) == "client-09, 0.500"


def test_small_panels_show_areas_and_the_names_stand_once_above_them():
    lines = [Line("local", X, X, "local", area=0.612), Line("federated", X, 2 * X, "federated", area=0.734)]
    figure = draw(Sheet("grid", "", [Panel(f"client-{index}", lines) for index in range(10)], columns=5), "data")
    assert [text.get_text() for text in figure.axes[3].get_legend().get_texts()] == ["0.734", "0.612"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["federated", "local"]
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert figure.legends[0].get_window_extent(renderer).y0 >= figure.axes[0].get_window_extent(renderer).y1


def test_labels_that_all_panels_share_are_written_once():
    figure = draw(grid(10, 5))
    assert [text.get_text() for text in shown_texts(figure)].count("mean accuracy") == 1


def test_a_large_cloud_does_not_become_a_shape_for_each_point(tmp_path):
    def svg(count):
        lines = [Line("everyone", *cloud(count), "everyone", dots=True)]
        _, path = write(draw(Sheet("cloud", "", [Panel("t-SNE", lines, axes=False)])), tmp_path / str(count))
        return path.read_text()

    assert "<image" not in svg(50)
    assert "<image" in svg(5000)
    assert len(svg(20000)) < 1_000_000


def test_a_cloud_has_no_ticks_and_its_legend_beside_it():
    lines = [Line("task a", *cloud(30), "one", dots=True), Line("task b", *cloud(30), "two", dots=True)]
    figure = draw(Sheet("cloud", "", [Panel("queries", lines, axes=False)]))
    (axes,) = figure.axes
    assert len(axes.get_xticks()) == len(axes.get_yticks()) == 0
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert axes.get_legend().get_window_extent(renderer).x0 >= axes.get_window_extent(renderer).x1


def test_bubbles_have_areas_proportional_to_shares():
    shares = [[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]]
    (axes,) = draw(Sheet("models", "", [Bubbles("Models", ["a", "b"], ["x", "y", "z"], shares)])).axes
    circles = axes.collections[0]
    assert circles.get_offsets().tolist() == [[0, 0], [1, 0], [0, 1]]
    sizes = circles.get_sizes()
    assert sizes / sizes[-1] == pytest.approx([0.25, 0.75, 1.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_the_same_sheet_is_the_same_bytes(tmp_path):
    first = [path.read_bytes() for path in write(draw(grid(3, 3), "note"), tmp_path / "first")]
    again = [path.read_bytes() for path in write(draw(grid(3, 3), "note"), tmp_path / "again")]
    assert first == again
    assert re.search(rb'width="\d', first[1])
