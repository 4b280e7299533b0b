"""`fedrouter import`: an evaluation log of other tools' results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.errors import BadInput


def import_(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="lm-eval, inspect, promptfoo, litellm or langfuse.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files that the tool wrote.")],
    out: Annotated[Path, typer.Option("--out", help="Evaluation log to write (parquet).")],
    score: Annotated[
        str | None, typer.Option("--score", help="Which score: a metric, a scorer, a name or a path; see docs/log.md.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="The model's name, instead of the files'.")] = None,
    prices: Annotated[
        list[str] | None,
        typer.Option("--price", help="NAME=INPUT/OUTPUT, US dollars per million tokens; instead of the files' costs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an evaluation log of another tool's results; costs that are missing come from a dated table of prices."""
    from fedrouter.data.importers.registry import import_log
    from fedrouter.data.prices import price_table, read_prices

    voice = Voice(as_json)
    if out.suffix != ".parquet":
        raise BadInput(f"{out}: expected a name that ends in .parquet")
    found = import_log(tool, files, out, score, model, read_prices(prices or ()))
    voice.say(f"[bold]{escape(str(out))}[/]: {found.rows:,} evaluations")
    voice.table(
        ["model", "rows", "cost"],
        [
            [escape(name), f"{rows:,}", _source_of_cost(found.priced.get(name))]
            for name, rows in sorted(found.models.items())
        ],
    )
    table = price_table()
    listed = any(source != "--price" for source in found.priced.values())
    if listed:
        voice.say(f"\nPrices of {table.date}: {table.source}. They change: --price MODEL=INPUT/OUTPUT overrides one.")
    if len(found.renamed) > 1:
        names = ", ".join(f"{escape(name) or 'none'} ({rows:,})" for name, rows in sorted(found.renamed.items()))
        voice.warn(f"--model {escape(str(model))} stands for several models of the files: {names}")
    if found.unscored:
        voice.warn(f"left out, because they have no score: {found.unscored:,} rows")
    voice.next(f"fedrouter learn {quoted(out)} --out {quoted(out.with_suffix(''))}")
    voice.result(
        {
            "from": tool,
            "log": str(out),
            "rows": found.rows,
            "without_score": found.unscored,
            "models": found.models,
            "renamed": found.renamed,
            "priced": found.priced,
            "prices": {"date": table.date, "source": table.source} if listed else None,
        }
    )


def _source_of_cost(price: str | None) -> str:
    if price is None:
        return "as logged"
    return "tokens at --price" if price == "--price" else f"tokens at the list price of {price}"
