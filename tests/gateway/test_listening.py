"""IPv6: listeners, dual-stack ones, upstreams, sign-ins, and addresses that are shown; by real sockets."""

import socket

import httpx2 as httpx
import numpy as np
import pytest

from fedrouter.errors import FedrouterError
from fedrouter.gateway.access import SIGN_INS
from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.gateway import open_gateway
from fedrouter.gateway.http_server import listen, url_of
from fedrouter.gateway.server import serve
from gateway.process import GatewayProcess, settings
from gateway.running import SQL, config_for
from gateway.upstreams import ControlledUpstream


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback (::1)")


@pytest.fixture(scope="module")
def upstream_v6():
    found = ControlledUpstream("::1")
    yield found
    found.stop()


def on_both(url):
    """The address of a gateway over IPv6, and over IPv4."""
    port = url.rpartition(":")[2]
    return f"http://[::1]:{port}", f"http://127.0.0.1:{port}"


def test_an_address_that_is_shown_can_be_pasted():
    shown = [url_of(host, 80) for host in ("::1", "::", "0.0.0.0", "example.org")]
    assert shown == ["http://[::1]:80", "http://[::1]:80", "http://127.0.0.1:80", "http://example.org:80"]


@pytest.mark.parametrize("host", ["gateway..internal", "x" * 64 + ".internal"])
def test_what_cannot_be_the_name_of_a_host_is_said(host, bundle, upstream, tmp_path):
    server = ServerConfig(host=host, port=8080)
    with pytest.raises(FedrouterError, match=rf"^{host}:8080: cannot listen there: no such host"):
        listen(server)
    config = config_for(tmp_path, bundle, upstream.url, server=server)
    with pytest.raises(FedrouterError, match="cannot listen there: no such host"):
        serve(config, print, lambda: open_gateway(config, lambda identity: lambda texts: np.zeros((len(texts), 1))))


@ipv6
def test_a_taken_port_is_said_with_brackets():
    with listen(ServerConfig(host="::1", port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            FedrouterError, match=rf"^\[::1\]:{port}: cannot listen there: another process does; choose"
        ):
            listen(ServerConfig(host="::1", port=port))


@ipv6
def test_a_gateway_and_its_upstream_on_ipv6(start, bundle, upstream_v6, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream_v6.url, server=ServerConfig(host="::1", port=0)))
    assert gateway.url.startswith("http://[::1]:")
    assert gateway.record(gateway.chat()).status == "ok"
    assert upstream_v6.headers[-1]["host"] == f"[::1]:{upstream_v6.port}"


@ipv6
def test_a_dual_stack_gateway_serves_both_and_limits_their_sign_ins_apart(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, server=ServerConfig(host="::", port=0)))

    def sign_in(client, key):
        headers = {"x-page-request": "1", "origin": str(client.base_url).rstrip("/")}
        return client.post("/page/api/session", json={"key": key}, headers=headers).status_code

    v6, v4 = on_both(gateway.url)
    with httpx.Client(base_url=v6) as by_v6, httpx.Client(base_url=v4) as by_v4:
        assert [sign_in(by_v4, "wrong") for _ in range(SIGN_INS)] == [401] * SIGN_INS
        assert sign_in(by_v4, gateway.key) == 429
        assert sign_in(by_v6, gateway.key) == 200


@ipv6
@pytest.mark.slow
def test_workers_on_ipv6_serve_both(tmp_path, bundle, upstream_v6):
    config = settings(tmp_path, bundle, upstream_v6.url) | {"server": {"host": "::", "port": 0}}
    gateway = GatewayProcess(tmp_path, config, workers=2)
    gateway.start()
    assert gateway.url.startswith("http://[::1]:")
    body = {"model": "auto", "messages": [{"role": "user", "content": SQL}]}
    headers = {"authorization": f"Bearer {gateway.key}"}
    for url in on_both(gateway.url):
        assert httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60).status_code == 200
    assert gateway.stop() == 0


def test_an_address_of_another_machine_is_said_to_be_one():
    with pytest.raises(
        FedrouterError, match=r"^203\.0\.113\.7:8080: cannot listen there: it is no address of this machine"
    ):
        listen(ServerConfig(host="203.0.113.7", port=8080))
