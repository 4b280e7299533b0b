"""Requests to a SuperLink: a real server whose answers are too large, of unknown size, compressed, late or missing."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import httpx
import pytest

from fedrouter.engines.flower.http import Caller, Disconnected, Rejected, at_most, check_size
from fedrouter.errors import BadMessage


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        name = self.path.strip("/")
        if name in ("401", "403", "500"):
            self.send_response(int(name))
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_response(200)
        if name == "compressed":
            self.send_header("content-encoding", "gzip")
        if name != "unknown":
            self.send_header("content-length", "1000")
        self.end_headers()
        self.server.sent += self.wfile.write(b"x" * 1000)

    def log_message(self, *_): ...


@pytest.fixture(scope="module")
def server():
    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        found.sent = 0
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def post(server):
    with httpx.Client(event_hooks={"response": [check_size]}) as client:

        def post(name):
            answer = client.post(f"http://127.0.0.1:{server.server_port}/{name}", content=b"1")
            answer.raise_for_status()
            return answer.content

        yield post


def caller(patience=0.5):
    changes = []
    return Caller(patience, lambda seconds: threading.Event().wait(min(seconds, 0.01)), changes.append), changes


def test_a_response_within_its_limit_is_read(post):
    with at_most(1000):
        assert len(post("small")) == 1000


@pytest.mark.parametrize(
    ("name", "why"), [("large", "larger than its request allows"), ("unknown", "size"), ("compressed", "size")]
)
def test_a_response_too_large_or_of_unknown_size_is_refused_before_it_is_read(post, name, why):
    with pytest.raises(BadMessage, match=why), at_most(999):
        post(name)


def test_the_limit_ends_with_its_block(post):
    with at_most(1):
        pass
    assert post("small")


def test_a_refusal_is_raised_at_once_with_its_status(post):
    call, changes = caller()
    for status in (401, 403):
        with pytest.raises(Rejected) as found:
            call(post, str(status))
        assert found.value.status == status
    assert changes == []


def test_a_server_that_fails_is_asked_again_for_a_while(post):
    call, changes = caller()
    with pytest.raises(Disconnected):
        call(post, "500")
    assert changes == [False]


def test_a_server_that_comes_back_is_noticed():
    call, changes = caller(60)
    answers = iter([httpx.ConnectError("gone"), httpx.ReadTimeout("slow"), SimpleNamespace(ok=True)])

    def function(_):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert call(function, None).ok
    assert changes == [False, True]


def test_a_caller_that_is_stopped_waits_no_longer():
    def gone(_):
        raise httpx.ConnectError("gone")

    with pytest.raises(Disconnected):
        Caller(10**6, lambda seconds: True, lambda connected: None)(gone, None)
