"""A client's private record of what it refused and why, without anything of its evaluations; others hear a word."""

import json

import pytest

from conftest import drawn_evaluations
from fedrouter.deployment.client.refusals import MOST_BYTES, RecordingClient, RefusalLog
from fedrouter.deployment.runs.server import Notices
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.secagg.server import Secure
from fedrouter.federation.verbs.excluded import ExcludedRequest


def test_a_refusal_is_recorded_with_its_reason_and_an_error_about_rows_without_its_text(tmp_path):
    log = RefusalLog(tmp_path / "refusals.jsonl")
    assert log.last(5) == []
    log.refused("statistics", Refused("statistics: asked too often", "questions"))
    log.refused("train", BadMessage("TrainRequest: weights must be finite"))
    log.refused("hello", BadInput("row 7: my secret prompt"))
    log.refused("hello", KeyError("my secret prompt"))
    log.excluded("hello", "uses another encoder")
    assert "secret" not in log.path.read_text()
    assert log.path.stat().st_mode & 0o777 == 0o600
    found = log.last(5)
    assert [entry["event"] for entry in found] == ["refused"] * 4 + ["excluded"]
    assert found[0]["why"] == "statistics: asked too often"
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


def recording(tmp_path, **settings):
    log = RefusalLog(tmp_path / "refusals.jsonl")
    return RecordingClient(log, "north", drawn_evaluations(queries=60), **settings), log


def test_what_a_client_refuses_is_in_its_own_file(tmp_path):
    client, log = recording(tmp_path, privacy=PrivacyPolicy(secure_only=True))
    with pytest.raises(Refused):
        client.answer("costs", CostsRequest(("model-0",)))
    (entry,) = log.last(9)
    assert (entry["event"], entry["verb"], entry["error"]) == ("refused", "costs", "Refused")
    assert "under secure aggregation only" in entry["why"]


def test_what_is_withheld_from_a_cohort_is_in_the_private_file(tmp_path):
    recorded, log = recording(tmp_path)
    others = [Client(name, drawn_evaluations(seed=seed)) for seed, name in enumerate("abc", 1)]
    secure = Secure(LocalFederation([recorded, *others]))
    request = CostsRequest(("model-0", "model-1", "model-2"))
    assert secure.ask("costs", request)
    assert not secure.ask("costs", request, [recorded.name, "a", "b"])
    (entry,) = log.last(9)
    assert (entry["event"], entry["verb"]) == ("refused", "costs")
    assert "cohort_gap" in entry["why"]


def test_an_excluded_client_is_told_once_about_its_last_answer(tmp_path):
    client, log = recording(tmp_path)
    reported = []
    notices = Notices(LocalFederation([client]), lambda *report: reported.append(report))
    notices.rejected("north", "hello", "another\nreason")
    notices.rejected("north", "statistics", "counts that\x1b[2J no values have")
    assert len(reported) == 2
    notices.send()
    notices.send()
    (entry,) = log.last(9)
    assert (entry["event"], entry["verb"]) == ("excluded", "statistics")
    assert entry["why"] == "counts that [2J no values have"


@pytest.mark.parametrize("reason", ["", "two\nlines", "\x1b[2J", "x" * 301, None])
def test_a_notice_is_one_printable_line(reason):
    with pytest.raises(BadMessage, match="one line"):
        ExcludedRequest("hello", reason)
