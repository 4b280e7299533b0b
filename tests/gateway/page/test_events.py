"""Live updates: whose decisions a stream has, and that an open page does not delay a shutdown."""

import json
import threading
from contextlib import ExitStack

import httpx2 as httpx

from fedrouter.gateway.page.events import OF_ONE_KEY
from gateway.running import config_for


def first_event(visitor, opened: threading.Event) -> list[dict]:
    with visitor.http.stream("GET", "events") as response:
        for line in response.iter_lines():
            opened.set()
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
    return []


def test_a_stream_has_the_decisions_of_its_own_key_only(site):
    plain, found, opened = site.visitor(site.plain), {}, threading.Event()
    listening = threading.Thread(target=lambda: found.update(rows=first_event(plain, opened)))
    listening.start()
    assert opened.wait(60)
    site.gateway.chat("Of the administrator.")
    own = {"authorization": f"Bearer {site.plain}"}
    site.gateway.chat("Of the plain key.", headers=own)
    listening.join(60)
    assert [(row["key"], row["text"]) for row in found["rows"]] == [(site.plain_id, "Of the plain key.")]


def test_one_key_cannot_take_all_streams(site):
    plain, admin = site.visitor(site.plain), site.visitor()
    with ExitStack() as stack:
        taken = [stack.enter_context(plain.http.stream("GET", "events")).status_code for _ in range(OF_ONE_KEY)]
        assert set(taken) == {200}
        assert plain.get("events").status_code == 503
        assert stack.enter_context(admin.http.stream("GET", "events")).status_code == 200


def test_the_stream_of_a_disabled_key_ends_before_the_next_decision(site):
    identity, token = site.gateway.store.create_key("leaving", admin=True)
    with site.visitor(token).http.stream("GET", "events") as response:
        lines = response.iter_lines()
        assert next(lines).startswith("retry")
        site.gateway.store.disable_key(identity)
        site.gateway.chat("Nothing for a key that was disabled.")
        assert not [line for line in lines if line.startswith("data")]


def test_an_open_page_does_not_delay_a_shutdown(start, bundle, upstream, tmp_path):
    running = start(config_for(tmp_path, bundle, upstream.url))
    with httpx.Client(base_url=f"{running.url}/page/api/", headers={"x-page-request": "1"}, timeout=60) as client:
        client.post("session", json={"key": running.key})
        ended = threading.Event()

        def listen() -> None:
            with client.stream("GET", "events") as response:
                for _ in response.iter_lines():
                    running.app.stop()
            ended.set()

        thread = threading.Thread(target=listen)
        thread.start()
        assert ended.wait(running.config.server.drain / 2), "the stream outlived the server's decision to stop"
        thread.join()
