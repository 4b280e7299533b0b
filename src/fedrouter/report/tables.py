"""Writes tables of experiments as CSV, for further work, and as TeX (booktabs), for a paper."""

from __future__ import annotations

import csv
from pathlib import Path

from fedrouter.experiments.table import Row, Table
from fedrouter.files import PUBLIC, replace_file

SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%_#${}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "τ": r"$\tau$",
    "Γ": r"$\Gamma$",
}
HEADER = ("row", "column", "mean", "deviation", "seeds", "printed in the paper")


def write_table(table: Table, folder: Path) -> tuple[Path, Path]:
    """Write ``<name>.csv`` and ``<name>.tex``."""
    folder.mkdir(parents=True, exist_ok=True)
    values, print_form = folder / f"{table.name}.csv", folder / f"{table.name}.tex"
    with values.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for row in table.rows:
            for column in table.columns:
                cell, printed = row.cells.get(column), row.printed.get(column, "")
                if cell is not None:
                    numbers = (cell["mean"], cell["deviation"], len(cell["by_seed"]))
                    writer.writerow((row.label, column, *numbers, printed))
                elif printed != "":
                    writer.writerow((row.label, column, "", "", "", printed))
    replace_file(print_form, tex(table).encode(), PUBLIC)
    return values, print_form


def tex(table: Table) -> str:
    """The table as TeX: mean ± standard deviation over seeds, and printed values as the paper has them."""
    head = f"% {table.caption}. Mean and standard deviation over seeds.\n"
    return head + "\n".join(map(_tabular, table.blocks))


def _tabular(table: Table) -> str:
    columns = table.columns
    lines = [
        rf"\begin{{tabular}}{{l{'c' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *map(_escaped, columns)]) + r" \\",
        r"\midrule",
        *(
            " & ".join([_escaped(row.label), *(_cell(row, column) for column in columns)]) + r" \\"
            for row in table.rows
        ),
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ]
    return "\n".join(lines)


def _cell(row: Row, column: str) -> str:
    if column in row.cells:
        cell = row.cells[column]
        several = len(cell["by_seed"]) > 1
        return f"${cell['mean']:.3f}" + (rf" \pm {cell['deviation']:.3f}$" if several else "$")
    return f"{row.printed[column]:.3f}" if column in row.printed else ""


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)
