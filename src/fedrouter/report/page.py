"""A self-contained HTML page: no scripts, and no fonts or images from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files


class Page:
    """A page built from top to bottom; all text is escaped. Wide tables and figures scroll within a narrow window."""

    def __init__(self, title: str) -> None:
        self._title = escape(title)
        self._parts = [f"<h1>{self._title}</h1>"]

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str, kind: str = "") -> None:
        self._parts.append(f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def figure(self, svg: str, caption: str) -> None:
        """Add an SVG figure made by :func:`fedrouter.report.style.inline`."""
        self._parts.append(
            f'<figure style="margin:0">{svg}<figcaption class="soft">{escape(caption)}</figcaption></figure>'
        )

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table: the first column holds text, the others numbers."""
        self._table("", header, [[escape(cell) for cell in row] for row in rows])

    def words(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table of texts; its cells are HTML."""
        self._table(" class=words", header, rows)

    def _table(self, kind: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        self._parts.append(
            f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def html(self) -> str:
        css = (files("fedrouter.report") / "page.css").read_text()
        return (
            "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
            '<meta name=viewport content="width=device-width, initial-scale=1">'
            f"<title>{self._title}</title><style>{css}</style></head>\n<body>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )
