"""CSV as spreadsheets write it is read; what is not read is refused with what was found."""

import codecs

import pytest

from fedrouter.data import forms
from fedrouter.data.forms import batches
from fedrouter.data.read import read
from fedrouter.errors import BadInput

ROWS = [["Wie spät?", "small", "0.5", "0.001"], ['say "a;b,c"', "big", "1", "0.25"], ["two\nlines", "big", "", "0.001"]]
LOG = [["prompt", "model", "accuracy", "cost"], *ROWS]


def text(delimiter=",", rows=LOG, decimal="."):
    def cell(value):
        number = value.replace(".", "").isdigit()
        value = value.replace(".", decimal) if number else value.replace('"', '""')
        return f'"{value}"' if any(mark in value for mark in (delimiter, '"', "\n")) else value

    return "".join(delimiter.join(map(cell, row)) + "\n" for row in rows)


def assert_is_the_log(dataset):
    rows = dataset.evaluations
    assert rows.text == ("Wie spät?", 'say "a;b,c"')
    assert rows.pool.names == ("big", "small")
    assert rows.model.tolist() == [1, 0]
    assert rows.accuracy.tolist() == [0.5, 1.0]
    assert rows.cost.tolist() == [0.001, 0.25]
    assert dataset.unscored.cost.tolist() == [0.001]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
    ],
)
def test_delimiters_and_encodings_of_spreadsheets_are_read(tmp_path, delimiter, encoding, mark):
    path = tmp_path / ("log.tsv" if delimiter == "\t" else "log.csv")
    path.write_bytes(mark + text(delimiter).encode(encoding))
    assert_is_the_log(read(path))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_decimal_commas_are_read(tmp_path, delimiter):
    path = tmp_path / "log.csv"
    path.write_text(text(delimiter, decimal=","))
    assert_is_the_log(read(path))


def test_small_costs_with_decimal_commas_are_read(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("prompt;model;accuracy;cost\na;small;1;6,62e-05\nb;small;0,5;1,234E-05\n")
    assert read(path).evaluations.cost.tolist() == [6.62e-05, 1.234e-05]


def test_a_comma_that_may_group_thousands_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("prompt;model;accuracy;cost\na;small;1;0,5\nb;small;1;1,234\n")
    with pytest.raises(BadInput, match="row 2, column 'cost': expected a number, got text"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("log.csv", text().encode("cp1252"), "expected text in UTF-8 or UTF-16, found another encoding"),
        ("log.csv", codecs.BOM_UTF32_LE + text().encode("utf-32-le"), "expected csv .* found text in UTF-32"),
        ("log.csv", b"PK\x03\x04" + bytes(100), "found a zip file, as Excel's .xlsx is; save the sheet as CSV"),
        ("log.csv", b"PAR1" + bytes(100), "found a parquet file"),
        ("log.jsonl", b"\x1f\x8b" + bytes(100), "expected jsonl .* found compressed"),
        ("log.csv", b"prompt,model\n" + b"a" * 50 + bytes(2), "expected CSV in UTF-8, found bytes that are no text"),
        ("log.jsonl", '{"model": "a"}\n'.encode("utf-16"), "expected JSON lines in UTF-8, found UTF-16"),
        ("log.csv", b"prompt|model|accuracy|cost\na|b|1|1\n", r"wrong columns \(prompt\|model\|accuracy\|cost\)"),
    ],
)
def test_what_is_not_read_is_refused_with_what_was_found(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_json_lines_with_a_mark_are_read(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'{"prompt": "a", "model": "small", "accuracy": 1, "cost": 0.1}\n')
    assert read(path).evaluations.text == ("a",)


def test_a_model_name_that_looks_like_a_number_and_a_prompt_that_looks_empty_stay_what_they_are(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("prompt,model,accuracy,cost\nNA,007,true,0.1\nnull,7,FALSE,0.1\n")
    rows = read(path).evaluations
    assert (rows.pool.names, rows.text, rows.accuracy.tolist()) == (("007", "7"), ("NA", "null"), [1.0, 0.0])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_of_a_later_batch_are_named_as_in_the_file(tmp_path, monkeypatch, form):
    monkeypatch.setattr(forms, "AT_ONCE", 3)
    monkeypatch.setattr(forms, "BLOCK", 128 if form == "jsonl" else 1 << 12)
    path = tmp_path / f"log.{form}"
    values = [*["0.1"] * 100, '"free"']
    if form == "csv":
        path.write_text("cost\n" + "\n".join(values))
    else:
        path.write_text("\n".join(f'{{"cost": {value}}}' for value in values))
    with pytest.raises(BadInput, match="row 101, column 'cost': expected a number"):
        [batch.numbers("cost") for batch in batches(path)]
