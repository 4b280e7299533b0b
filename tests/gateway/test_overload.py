"""Many more connections at once than one process serves: each is answered, nothing is paid for in vain."""

import json
import resource
import socket
from collections import Counter
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from gateway.process import GatewayProcess, settings
from gateway.running import eventually
from gateway.upstreams import ControlledUpstream

pytestmark = pytest.mark.slow
CONNECTIONS, LIMIT = 1990, 1000
"""At once, with room for health checks below twice the limit; and `server.connections`."""
FILES = CONNECTIONS + LIMIT + 500


@pytest.fixture
def files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * LIMIT + 500:
        pytest.skip(f"{4 * LIMIT + 500} open files are needed, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_two_thousand_connections_at_once_are_all_answered(tmp_path, bundle, files):
    upstream = ControlledUpstream()
    config = settings(tmp_path, bundle, upstream.url, {"*": "waits"})
    config["server"] |= {"connections": LIMIT, "in_progress_per_key": 2 * LIMIT}
    config["timing"] |= {"connect": 60, "answer": 120, "deadline": 120}
    gateway = GatewayProcess(tmp_path, config)
    gateway.start()
    before, address = gateway.megabytes(), urlsplit(gateway.url)
    body = json.dumps({"model": "atlas-mini", "messages": [{"role": "user", "content": "Hello"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.key}\r\n"
    request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body

    with ExitStack() as opened:
        connections = []
        for _ in range(CONNECTIONS):
            connection = socket.create_connection((address.hostname, address.port), timeout=120)
            connections.append(opened.enter_context(connection))
            connection.sendall(request)
        assert eventually(lambda: upstream.asked["waits"] == LIMIT, 120)
        for path in ("live", "ready"):
            assert httpx.get(f"{gateway.url}/health/{path}", timeout=60).status_code == 200
        memory = gateway.megabytes()
        upstream.released.set()
        answers = [connection.recv(1 << 16) for connection in connections]
    found = Counter(int(answer.split(b" ")[1]) for answer in answers)
    assert found == {200: LIMIT, 503: CONNECTIONS - LIMIT}
    assert all(b"\r\nretry-after: 1\r\n" in answer for answer in answers if answer.startswith(b"HTTP/1.1 503 "))
    assert upstream.asked["waits"] == LIMIT
    assert memory - before < 150
    assert gateway.stop() == 0
    upstream.stop()
    print(f"\n{CONNECTIONS} at once: {dict(found)}; from {before:.0f} to {memory:.0f} MB")
