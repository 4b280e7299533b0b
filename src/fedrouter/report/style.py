"""The style of all figures: legible in print, safe for color-blind readers, and reproducible to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrouter.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#000000",
)
GREY = "#8C8C8C"

SETTINGS: dict[Any, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 2.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedrouter",
}


def require_matplotlib() -> None:
    """Raise MissingExtra unless matplotlib is installed; commands call it before long work."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("Drawing figures", "plots") from None


@contextmanager
def style() -> Iterator[None]:
    """Apply the settings while drawing; needs the [plots] extra."""
    require_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(SETTINGS):
        yield


def write(figure: Figure, stem: Path) -> list[Path]:
    """Write the figure as PNG and SVG."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        save(figure, path)
    return paths


def save(figure: Figure, path: Path, description: str | None = None) -> None:
    """Write the figure as PNG or SVG, without a date, with words for those who cannot see it."""
    own = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
    with style():
        figure.savefig(path, metadata={**own, "Description": description})


def inline(figure: Figure) -> str:
    """The figure as an SVG element for a page."""
    sink = BytesIO()
    with style():
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    text = sink.getvalue().decode()
    return text[text.index("<svg") :]
