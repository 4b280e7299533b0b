"""Live updates: whose decisions a stream has, and that an open page does not delay a shutdown."""

from __future__ import annotations

import json
import threading
import time

import httpx2 as httpx

from gateway.running import config_for


def first_event(visitor) -> list[dict]:
    with visitor.http.stream("GET", "events") as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
    return []


def test_a_stream_has_the_decisions_of_its_own_key_only(site):
    plain, found = site.visitor(site.plain), {}
    listening = threading.Thread(target=lambda: found.update(rows=first_event(plain)))
    listening.start()
    time.sleep(0.5)
    site.gateway.chat("Of the administrator.")
    own = {"authorization": f"Bearer {site.plain}"}
    site.gateway.chat("Of the plain key.", headers=own)
    listening.join(20)
    assert [(row["key"], row["text"]) for row in found["rows"]] == [(site.plain_id, "Of the plain key.")]


def test_an_open_page_does_not_delay_a_shutdown(start, bundle, upstream, tmp_path):
    running = start(config_for(tmp_path, bundle, upstream.url))
    with httpx.Client(base_url=f"{running.url}/page/api/", headers={"x-page-request": "1"}, timeout=60) as client:
        client.post("session", json={"key": running.key})
        ended = threading.Event()

        def listen() -> None:
            with client.stream("GET", "events") as response:
                for _ in response.iter_lines():
                    running.app.should_exit = True
            ended.set()

        thread = threading.Thread(target=listen)
        thread.start()
        assert ended.wait(running.config.server.drain / 2), "the stream outlived the server's decision to stop"
        thread.join()
