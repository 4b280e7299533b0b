"""A client records its own refusals and what the coordinator tells it; the coordinator is not told more than a word."""

import pytest

from conftest import drawn_evaluations
from fedrouter.deployment.client.recording import RecordingClient
from fedrouter.deployment.runs.notices import Notices
from fedrouter.deployment.state.refusals import RefusalLog
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.secagg.server import Secure
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.excluded import ExcludedRequest
from fedrouter.federation.verbs.second_moment import SecondMomentRequest


def recording(tmp_path, **settings):
    log = RefusalLog(tmp_path / "refusals.jsonl")
    return RecordingClient(log, "north", drawn_evaluations(queries=60), **settings), log


def test_what_a_client_refuses_is_in_its_own_file(tmp_path):
    client, log = recording(tmp_path, privacy=PrivacyPolicy(secure_only=True))
    with pytest.raises(Refused):
        client.answer("cost_scale", CostScaleRequest(("model-0",)))
    (entry,) = log.last(9)
    assert (entry["event"], entry["verb"], entry["error"]) == ("refused", "cost_scale", "Refused")
    assert "under secure aggregation only" in entry["why"]


def test_what_is_withheld_from_a_cohort_is_in_the_private_file(tmp_path):
    recorded, log = recording(tmp_path)
    others = [Client(name, drawn_evaluations(seed=seed)) for seed, name in enumerate("abc", 1)]
    secure = Secure(LocalFederation([recorded, *others]))
    assert secure.ask("second_moment", SecondMomentRequest())
    assert not secure.ask("second_moment", SecondMomentRequest(), [recorded.name, "a", "b"])
    (entry,) = log.last(9)
    assert (entry["event"], entry["verb"]) == ("refused", "second_moment")
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
