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


def test_axes_are_cut_to_the_routers_and_their_bands():
    oracle = Line("oracle", X, 10 * X, "oracle", reference=True)
    router = Line("federated", X, 0.1 * X, "federated", low=0.1 * X - 0.5, high=0.1 * X + 0.5)
    (axes,) = draw(Sheet("one", "", [Panel("p", [oracle, router])])).axes
    low, high = axes.get_ylim()
    assert low < -0.5
    assert 0.7 < high < 1


def test_a_large_cloud_does_not_become_a_shape_for_each_point(tmp_path):
    def svg(count):
        lines = [Line("everyone", *cloud(count), "everyone", dots=True)]
        _, path = write(draw(Sheet("cloud", "", [Panel("t-SNE", lines, axes=False)])), tmp_path / str(count))
        return path.read_text()

    assert "<image" not in svg(50)
    assert "<image" in svg(5000)
    assert len(svg(20000)) < 1_000_000


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
