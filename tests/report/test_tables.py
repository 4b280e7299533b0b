"""Tables of experiments as TeX."""

from fedrouter.experiments.table import Row, Table, tabulate
from fedrouter.report.tables import tex


def number(mean: float) -> dict:
    return {"mean": mean, "deviation": 0.0, "by_seed": [mean]}


def test_rows_about_different_things_are_printed_without_empty_columns():
    areas = Row("before", {"auc": number(0.5), "aiq": number(0.6)}), Row("after", {"auc": number(0.7)})
    table = Table("new-models", "Areas", [areas[0], Row("share", {"kmeans": number(0.2)}), areas[1]])
    assert [[row.label for row in block.rows] for block in table.blocks] == [["before", "after"], ["share"]]
    printed = tex(table)
    assert printed.count(r"\begin{tabular}") == printed.count(r"\end{tabular}") == 2
    assert r"before & $0.500$ & $0.600$ \\" in printed
    assert r"share & $0.200$ \\" in printed


def test_a_number_for_each_row_is_a_column():
    summary = {"before": {"auc": number(0.5)}, "after": {"auc": number(0.7)}}
    summary["by queries"] = {"before": number(0.4), "after": number(0.6)}
    (table,) = tabulate("new-clients", "Areas", lambda runs: summary)([])
    assert [row.label for row in table.rows] == ["before", "after"]
    assert table.columns == ["auc", "by queries"]
    assert table.rows[1].cells["by queries"]["mean"] == 0.6


def test_signs_that_tex_reads_as_commands_are_escaped():
    printed = tex(Table("t", "T", [Row(r"a_b^c~{d}\e & τ", {"50%": number(0.5)})]))
    assert r"a\_b\textasciicircum{}c\textasciitilde{}\{d\}\textbackslash{}e \& $\tau$ & $0.500$" in printed
    assert r"50\%" in printed
