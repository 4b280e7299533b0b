"""Upstreams that fail in every way there is: the client hears a plain error, and the log has every request."""

import threading
import time

import pytest

from fedrouter.gateway.upstream.deployments import FAILURES
from gateway.running import NAMES, PATIENT, QUICK, SQL, config_for, events, eventually


@pytest.fixture(autouse=True)
def fresh(upstream):
    upstream.forget()


@pytest.fixture(scope="module")
def failing(start, bundle, upstream, tmp_path_factory):
    """One gateway whose models each fail in their own way; named models have nobody to stand in."""
    ways = ("hang", "reset", "busy", "busy/30", "broken", "unauthorised", "redirect", "rubbish", "rubbish-json")
    behaviors = dict(zip(NAMES, (*ways, "dies", "stalls", "refuses"), strict=True))
    gateway = start(config_for(tmp_path_factory.mktemp("failing"), bundle, upstream.url, behaviors))
    gateway.of = {way: name for name, way in behaviors.items()}
    return gateway


@pytest.mark.parametrize(
    ("way", "status", "logged", "asked"),
    [
        ("hang", 504, "timeout", 1),
        ("reset", 502, "upstream_error", 2),
        ("busy", 429, "upstream_error", 2),
        ("busy/30", 429, "upstream_error", 1),
        ("broken", 502, "upstream_error", 2),
        ("unauthorised", 502, "upstream_error", 1),
        ("redirect", 502, "upstream_error", 1),
        ("rubbish", 502, "upstream_error", 2),
        ("rubbish-json", 502, "upstream_error", 2),
        ("refuses", 400, "refused", 1),
    ],
)
def test_a_failure_is_said_plainly_and_logged(failing, upstream, way, status, logged, asked):
    response = failing.chat(SQL, model=failing.of[way])
    assert response.status_code == status
    error = response.json()["error"]
    assert error["message"]
    assert "quoted" not in response.text
    record = failing.record(response)
    assert record.status == logged
    assert (record.cost is not None) == (way in ("hang", "reset", "rubbish", "rubbish-json"))  # may be charged
    assert record.attempts == asked == upstream.asked[way]


def test_an_answer_with_another_status_than_200_is_a_failure(start, bundle, upstream, tmp_path):
    ways = {"atlas-mini": "status/101", "atlas-max": "status/206"}
    gateway = start(config_for(tmp_path, bundle, upstream.url, ways))
    for model in ways:
        response = gateway.chat(SQL, model=model)
        assert (response.status_code, gateway.record(response).status) == (502, "upstream_error")


def test_a_long_retry_after_is_passed_on_and_the_model_rests(failing, upstream):
    name = failing.of["busy/30"]
    failing.chat(SQL, model=name)
    asked = upstream.asked["busy/30"]
    response = failing.chat(SQL, model=name)
    assert response.status_code in (429, 503)
    assert 0 < int(response.headers["retry-after"]) <= 30
    assert upstream.asked["busy/30"] == asked  # it was left alone


def test_an_upstream_refusal_of_the_client_s_own_making_passes_untouched(failing):
    response = failing.chat(SQL, model=failing.of["refuses"])
    assert response.json() == {"error": {"message": "temperature too high", "code": "bad"}}


@pytest.mark.parametrize(("way", "logged"), [("dies", "upstream_error"), ("stalls", "timeout")])
def test_a_stream_that_breaks_off_says_so_and_is_not_begun_again(failing, upstream, way, logged):
    response = failing.chat(SQL, model=failing.of[way], stream=True)
    assert response.status_code == 200
    *said, last = events(response)
    assert [event["choices"][0]["delta"]["content"] for event in said] == ["", "word0 ", "word1 "]
    assert response.text.count("word1") == 1
    assert last["error"]["code"] == logged
    assert "[DONE]" not in response.text
    assert upstream.asked[way] == 1
    record = failing.record(response)
    assert record.status == logged
    assert record.output_tokens == 3  # what was sent was paid for


def test_a_stream_is_over_when_it_says_so_even_if_its_connection_lingers(start, bundle, upstream, tmp_path):
    patient = QUICK.replace(answer=60)  # longer than the test's client waits
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "lingers"}, timing=patient))
    response = gateway.chat(SQL, stream=True)
    assert response.text.rstrip().endswith("[DONE]")
    assert gateway.record(response).status == "ok"


def test_the_next_model_of_the_ranking_stands_in(start, bundle, upstream, tmp_path, known_prompts):
    prompt = next(iter(known_prompts))
    well = start(config_for(tmp_path, bundle, upstream.url))
    ranking = well.http.post("/v1/route", json=_body(prompt)).json()["ranking"]
    first, second, third = (entry["model"] for entry in ranking[:3])
    (tmp_path / "b").mkdir()
    broken = start(config_for(tmp_path / "b", bundle, upstream.url, {first: "broken", second: "hang"}))
    for streamed in (False, True):
        response = broken.http.post("/v1/chat/completions", json=_body(prompt) | {"stream": streamed})
        assert response.status_code == 200
        assert response.headers["x-fedrouter-model"] == third
        assert response.headers["x-fedrouter-instead-of"] == first
        record = broken.record(response)
        assert (record.chosen, record.served, record.attempts, record.status) == (first, third, 4, "ok")


def _ranking(start, bundle, upstream, folder, prompt):
    found = start(config_for(folder, bundle, upstream.url)).http.post("/v1/route", json=_body(prompt)).json()["ranking"]
    return [entry["model"] for entry in found]


@pytest.mark.parametrize("way", ["too-long", "lacks-it"])
def test_a_request_that_one_model_cannot_take_goes_to_the_next(start, bundle, upstream, tmp_path, known_prompts, way):
    prompt = next(iter(known_prompts))
    first, second, *_ = _ranking(start, bundle, upstream, tmp_path, prompt)
    (tmp_path / "b").mkdir()
    config = config_for(tmp_path / "b", bundle, upstream.url, {first: way})
    config = config.replace(models=tuple(model.replace(context=None) for model in config.models))
    gateway = start(config)
    for streamed in (False, True):
        response = gateway.chat(prompt, stream=streamed)
        assert (response.status_code, response.headers["x-fedrouter-model"]) == (200, second)
        record = gateway.record(response)
        assert (record.status, record.chosen, record.served, record.attempts) == ("ok", first, second, 2)
    named = gateway.chat(prompt, model=first)
    assert (named.status_code, gateway.record(named).status) == (400, "refused")


def test_a_request_that_no_model_can_take_gets_the_first_refusal_and_no_shorter_model_is_asked(
    start, bundle, upstream, tmp_path, known_prompts
):
    prompt = next(iter(known_prompts))
    config = config_for(tmp_path, bundle, upstream.url, {"*": "too-long"})
    lengths = {name: 1000 * place for place, name in enumerate(NAMES, 1)}
    gateway = start(config.replace(models=tuple(m.replace(context=lengths[m.name]) for m in config.models)))
    response = gateway.chat(prompt)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    record = gateway.record(response)
    assert record.status == "refused"
    assert record.served == record.chosen
    longer = sum(length > lengths[record.chosen] for length in lengths.values())
    assert upstream.asked["too-long"] == record.attempts == 1 + longer


def test_a_stream_that_begins_with_an_error_goes_to_the_next_model(start, bundle, upstream, tmp_path, known_prompts):
    prompt = next(iter(known_prompts))
    first, second, *_ = _ranking(start, bundle, upstream, tmp_path, prompt)
    (tmp_path / "b").mkdir()
    gateway = start(config_for(tmp_path / "b", bundle, upstream.url, {first: "error-first"}))
    response = gateway.chat(prompt, stream=True)
    assert response.headers["x-fedrouter-model"] == second
    assert response.text.rstrip().endswith("[DONE]")
    assert "overloaded" not in response.text
    assert gateway.record(response).attempts == 3  # it is retried once, as after any failure
    named = gateway.chat(prompt, model=first, stream=True)
    assert "overloaded" in named.text  # nobody else could answer: the client sees what the upstream said
    assert gateway.record(named).status == "upstream_error"


def test_a_model_that_stays_busy_is_left_for_the_next_without_waiting(start, bundle, upstream, tmp_path, known_prompts):
    prompt = next(iter(known_prompts))
    first, second, *_ = _ranking(start, bundle, upstream, tmp_path, prompt)
    (tmp_path / "b").mkdir()
    timing = QUICK.replace(retries=5, answer=30)
    gateway = start(config_for(tmp_path / "b", bundle, upstream.url, {first: "busy/10"}, timing=timing))
    begun = time.perf_counter()
    response = gateway.chat(prompt)
    assert response.headers["x-fedrouter-model"] == second
    assert time.perf_counter() - begun < 9  # not as long as Retry-After said
    assert upstream.asked["busy/10"] == 1
    assert gateway.record(gateway.chat(prompt)).chosen == second  # it rests
    assert upstream.asked["busy/10"] == 1


def test_a_busy_upstream_is_asked_again_and_answers(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "busy-once/0.2"}))
    begun = time.perf_counter()
    response = gateway.chat(SQL)
    assert response.status_code == 200
    assert time.perf_counter() - begun >= 0.2  # as long as Retry-After said
    record = gateway.record(response)
    assert record.attempts == 2
    assert record.chosen == record.served


def test_a_model_that_keeps_failing_is_left_alone_and_tried_again_later(
    start, bundle, upstream, tmp_path, known_prompts
):
    prompt = next(iter(known_prompts))
    timing = PATIENT.replace(retries=0, breaker_rest=0.5)
    ranking = start(config_for(tmp_path, bundle, upstream.url)).http.post("/v1/route", json=_body(prompt)).json()
    first = ranking["model"]
    (tmp_path / "b").mkdir()
    gateway = start(config_for(tmp_path / "b", bundle, upstream.url, {first: "broken"}, timing=timing))
    for _ in range(FAILURES + 2):
        assert gateway.chat(prompt).status_code == 200
    assert upstream.asked["broken"] == FAILURES
    assert gateway.record(gateway.chat(prompt)).chosen != first  # not even chosen while it rests
    time.sleep(0.6)
    gateway.chat(prompt)
    assert upstream.asked["broken"] == FAILURES + 1


def test_a_client_that_hangs_up_mid_stream_ends_the_upstream_s_stream_and_is_logged(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "endless"}))
    with gateway.http.stream("POST", "/v1/chat/completions", json=_body(SQL) | {"stream": True}) as response:
        for piece in response.iter_raw():
            if b"word0" in piece:
                break
    assert upstream.closed_early.wait(5)
    record = _eventually(lambda: gateway.record(response))
    assert record.status == "client_gone"
    assert record.output_tokens > 0


def test_many_at_once_each_get_their_own_answer_and_row(start, bundle, upstream, tmp_path):
    patient = QUICK.replace(answer=30)
    behaviors = {"atlas-max": "slow", "ember-med": "drip"}
    gateway = start(config_for(tmp_path, bundle, upstream.url, behaviors, timing=patient))
    ids, wrong = set(), []

    def ask(place):
        streamed = place % 2 == 0
        model = ("auto", "atlas-max", "ember-med")[place % 3]
        response = gateway.chat(f"{SQL} {place}", model=model, stream=streamed)
        if response.status_code != 200 or ("[DONE]" in response.text) != streamed:
            wrong.append(response.text)
        ids.add(response.headers["x-fedrouter-decision-id"])

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert {record.id for record in gateway.store.rows()} == ids
    assert len(ids) == 40


def _body(prompt):
    return {"model": "auto", "messages": [{"role": "user", "content": prompt}]}


def _eventually(look, seconds=5.0):
    end = time.monotonic() + seconds
    while (found := look()) is None and time.monotonic() < end:
        time.sleep(0.02)
    return found


def test_a_plain_request_whose_client_hung_up_is_cancelled_at_once(start, bundle, upstream, tmp_path):
    import httpx2 as httpx

    config = config_for(tmp_path, bundle, upstream.url, {"*": "hang"}, timing=QUICK.replace(answer=50))
    gateway = start(config)
    with pytest.raises(httpx.TimeoutException):
        gateway.http.post(
            "/v1/chat/completions",
            json={"model": "atlas-max", "max_tokens": 100, "messages": [{"role": "user", "content": SQL}]},
            timeout=1,
        )
    assert eventually(lambda: list(gateway.store.rows()))
    (record,) = gateway.store.rows()
    assert (record.status, record.estimated) == ("client_gone", True)
    assert record.cost > 0
