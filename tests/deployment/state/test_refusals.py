"""A client's private record: what it refused and why, without anything of its evaluations."""

import json

from fedrouter.deployment.state.refusals import MOST_BYTES, RefusalLog
from fedrouter.errors import BadInput, BadMessage, Refused


def test_a_refusal_is_recorded_with_its_reason_and_an_error_about_rows_without_its_text(tmp_path):
    log = RefusalLog(tmp_path / "refusals.jsonl")
    assert log.last(5) == []
    log.refused("statistics", Refused("statistics: epsilon 2 is spent", "budget"))
    log.refused("train", BadMessage("TrainRequest: weights must be finite"))
    log.refused("hello", BadInput("row 7: my secret prompt"))
    log.refused("hello", KeyError("my secret prompt"))
    log.excluded("hello", "uses another encoder")
    assert "secret" not in log.path.read_text()
    assert log.path.stat().st_mode & 0o777 == 0o600
    found = log.last(5)
    assert [entry["event"] for entry in found] == ["refused"] * 4 + ["excluded"]
    assert found[0]["why"] == "statistics: epsilon 2 is spent"
    assert found[1]["why"] == "TrainRequest: weights must be finite"
    assert found[4]["why"] == "uses another encoder"
    assert [entry["verb"] for entry in log.last(2)] == ["hello", "hello"]


def test_a_long_record_is_set_aside_and_a_line_cut_short_is_left_out(tmp_path):
    log = RefusalLog(tmp_path / "refusals.jsonl")
    log.path.write_text(json.dumps({"why": "x" * MOST_BYTES}) + "\n")
    log.excluded("hello", "again")
    assert len(log.last(9)) == 1
    assert (tmp_path / "refusals.jsonl.old").exists()
    with log.path.open("a") as file:
        file.write('{"event": "ref')
    assert len(log.last(9)) == 1
