"""Feedback, usage, health, metrics and judges: what a gateway says about itself, and what it learns of its answers."""

import time
from dataclasses import replace

import pytest

from fedrouter.gateway.config import JudgeConfig, JudgesConfig
from fedrouter.store.outbox import Outbox
from gateway.running import SQL, config_for, eventually


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    return start(config_for(tmp_path_factory.mktemp("feedback"), bundle, upstream.url))


def score(gateway, decision, value):
    return gateway.http.post("/v1/feedback", json={"decision_id": decision, "score": value})


def test_a_score_is_in_the_log_when_it_is_acknowledged(gateway):
    response = gateway.chat(SQL)
    decision = response.headers["x-fedrouter-decision-id"]
    assert score(gateway, decision, 0.5).json() == {"decision_id": decision, "score": 0.5, "outcome": "stored"}
    assert gateway.record(response).score == 0.5
    assert score(gateway, decision, 0.5).json()["outcome"] == "same"
    assert score(gateway, decision, 1).json()["outcome"] == "replaced"
    assert gateway.record(response).score == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"decision_id": "0" * 32, "score": 1}, 404),
        ({"decision_id": "x" * 201, "score": 1}, 400),
        ({"decision_id": "", "score": 1}, 400),
        ({"decision_id": "../..", "score": 1}, 400),
        ({"decision_id": 3, "score": 1}, 400),
        ({"decision_id": "0" * 32, "score": 1.1}, 400),
        ({"decision_id": "0" * 32, "score": "1"}, 400),
        ({"decision_id": "0" * 32, "score": True}, 400),
        ({"decision_id": "0" * 32}, 400),
        ({"id": "nobody-knows", "score": 1}, 404),
        ({"id": "x" * 201, "score": 1}, 400),
        ({"id": "x", "decision_id": "0" * 32, "score": 1}, 400),
        ({"decision_id": "0" * 32, "score": 1, "comment": "good"}, 400),
        ([], 400),
    ],
)
def test_feedback_that_makes_no_sense_is_refused(gateway, body, status):
    assert gateway.http.post("/v1/feedback", json=body).status_code == status


def test_a_decision_whose_row_waits_is_known_to_its_key_and_admins_and_to_nobody_else(gateway, monkeypatch):
    monkeypatch.setattr("fedrouter.store.writer.LOOK", 3600)
    time.sleep(0.1)
    row = replace(gateway.record(gateway.chat(SQL)), id="d" * 32)
    _, stranger = gateway.store.create_key("stranger")
    other = Outbox(gateway.store.path, 1 << 16)  # as of a worker that the store did not answer in time
    other.add(row)
    other.close()
    headers = {"authorization": f"Bearer {stranger}"}
    sent = {"decision_id": row.id, "score": 1}
    assert gateway.http.get(f"/v1/decisions/{row.id}", headers=headers).status_code == 404
    assert gateway.http.post("/v1/feedback", json=sent, headers=headers).status_code == 404
    assert score(gateway, "e" * 32, 1).status_code == 404
    found = gateway.http.get(f"/v1/decisions/{row.id}")
    assert found.status_code in (200, 503)  # written meanwhile, or waiting
    assert score(gateway, row.id, 1).json()["outcome"] in ("deferred", "stored")
    assert eventually(lambda: (kept := gateway.store.get(row.id)) is not None and kept.score == 1, 30)


def test_usage_sums_what_the_log_holds(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    for model in ("atlas-max", "indigo-nano", "indigo-nano"):
        gateway.chat(SQL, fedrouter={"allow": model})
    gateway.chat(SQL, model="ember-med")  # not routed: saves nothing
    found = gateway.http.get("/v1/usage?by=model").json()
    assert found["baseline"] == "atlas-max"
    rows = {row["group"]: row for row in found["rows"]}
    assert rows["indigo-nano"]["requests"] == 2
    assert rows["atlas-max"]["saved"] == pytest.approx(0)
    assert rows["ember-med"]["saved"] == 0
    assert rows["indigo-nano"]["saved"] == pytest.approx(2 * (250 - 10 * 0.04 - 5 * 0.12) / 1e6)
    assert found["total"]["requests"] == 4
    today = gateway.http.get("/v1/usage?since=2020-01-01").json()["rows"]
    assert [row["group"] for row in today] == [time.strftime("%Y-%m-%d", time.gmtime())]
    for query in ("by=hour", "since=yesterday", "since=nan", "since=-5", "x=1", "since=1e300"):
        assert gateway.http.get(f"/v1/usage?{query}").status_code == 400


def test_the_surface_is_documented(gateway):
    found = gateway.http.get("/openapi.json", headers={"authorization": ""}).json()
    assert found["openapi"].startswith("3.1")
    assert {"/v1/chat/completions", "/v1/route", "/v1/feedback", "/v1/usage"} <= set(found["paths"])


def test_judges_score_in_the_background_and_give_way_to_people(start, bundle, upstream, tmp_path):
    judges = JudgesConfig(
        list=(JudgeConfig(kind="exact_match", settings={}), JudgeConfig(kind="regex", settings={"pattern": "^Five"}))
    )
    gateway = start(config_for(tmp_path, bundle, upstream.url).replace(judges=judges))
    right = gateway.chat(SQL, fedrouter={"expected": "four."})
    wrong = gateway.chat(SQL)
    end = time.monotonic() + 5
    while gateway.record(wrong).score is None and time.monotonic() < end:
        time.sleep(0.02)
    assert (gateway.record(right).score, gateway.record(right).scored_by) == (1.0, "judge:exact_match")
    assert (gateway.record(wrong).score, gateway.record(wrong).scored_by) == (0.0, "judge:regex")
    assert score(gateway, wrong.headers["x-fedrouter-decision-id"], 1).json()["outcome"] == "replaced"


def test_a_model_judges_within_its_budget(start, bundle, upstream, tmp_path):
    judges = JudgesConfig(list=(JudgeConfig(kind="model", settings={"model": "atlas-max"}),), daily_budget=0.01)
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"atlas-max": "grades"}, judges=judges))
    answers = [gateway.chat(f"{SQL} {place}", model="atlas-mini", stream=place % 2 == 0) for place in range(4)]
    end = time.monotonic() + 5
    while gateway.record(answers[0]).score is None and time.monotonic() < end:
        time.sleep(0.02)
    assert gateway.record(answers[0]).score == 0.7
    assert gateway.record(answers[0]).scored_by == "judge:model:atlas-max"
    assert len(list(gateway.store.rows())) == 4  # what judges ask is no request


def test_nothing_of_a_prompt_or_a_key_is_in_what_the_gateway_writes_down(start, bundle, upstream, tmp_path, caplog):
    secret = "my-very-private-question about a broken encoder"
    behaviors = {"atlas-mini": "broken", "atlas-max": "rubbish", "indigo-nano": "dies"}
    gateway = start(config_for(tmp_path, bundle, upstream.url, behaviors))
    for model in ("auto", "atlas-mini", "atlas-max", "indigo-nano", secret):
        gateway.chat(secret, model=model, stream=model == "indigo-nano", fedrouter={"task": "t"})
    gateway.chat(secret, fedrouter={secret: 1})
    assert "atlas-mini: attempt 1 failed: status 500" in caplog.text
    assert "the encoder failed: ValueError" in caplog.text
    assert "private" not in caplog.text
    assert "upstream-secret" not in caplog.text
    assert gateway.key not in caplog.text
    gateway.store.close()
    for path in tmp_path.glob("log.db*"):
        assert b"private" not in path.read_bytes()
        assert b"upstream-secret" not in path.read_bytes()


def test_prompts_are_kept_where_that_is_configured(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, keep_prompts=True))
    assert gateway.record(gateway.chat(SQL)).text == SQL
