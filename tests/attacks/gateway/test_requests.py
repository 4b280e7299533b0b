"""Requests that mean one thing to the gateway and another to an upstream, or that HTTP does not allow."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import pytest

from gateway.running import SQL, config_for, eventually
from gateway.wire import send

BODY = json.dumps({"model": "atlas-mini", "messages": [{"role": "user", "content": SQL}]}).encode()


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    config = config_for(tmp_path_factory.mktemp("requests"), bundle, upstream.url, {"atlas-max": "drip"})
    models = [
        model.replace(params=model.params.replace(api=frozenset({"chat", "responses"}))) for model in config.models
    ]
    return start(config.replace(models=tuple(models)))


def chunked(gateway, trailers: bytes, key: str | None) -> bytes:
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{authorization}transfer-encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(BODY), BODY, trailers)


def test_a_key_in_a_trailer_is_none(gateway):
    trailers = f"authorization: Bearer {gateway.key}\r\n".encode()
    reply = asyncio.run(send(gateway.url, chunked(gateway, trailers, None)))
    assert (reply.status, reply.error()["code"]) == (401, "invalid_api_key")


def test_an_option_in_a_trailer_is_none(gateway):
    reply = asyncio.run(send(gateway.url, chunked(gateway, b"x-fedrouter-allow: nobody\r\n", gateway.key)))
    assert reply.status == 200


@pytest.mark.parametrize("key", [True, False])
def test_trailers_without_end_are_refused_and_take_no_memory(gateway, key):
    parts = urlsplit(gateway.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        begun = chunked(gateway, b"", gateway.key if key else None).removesuffix(b"\r\n")
        sent = 0
        try:
            connection.sendall(begun)
            while sent < 64 << 20:
                connection.sendall(b"x-more: " + b"y" * 8000 + b"\r\n")
                sent += 8010
        except ConnectionError:
            pass
    assert sent < 32 << 20  # what the buffers of both sockets hold, at most


@pytest.mark.parametrize("hosts", [b"", b"host: x\r\nhost: y\r\n", b"host:\r\n"])
def test_a_request_has_one_host(gateway, hosts):
    reply = asyncio.run(send(gateway.url, b"GET /health/live HTTP/1.1\r\n" + hosts + b"\r\n"))
    assert reply.status == 400


@pytest.mark.parametrize("more", [b"", b'"stream": true, '])
def test_an_answer_to_http_1_0_is_not_chunked(gateway, more):
    body = BODY.replace(b'"atlas-mini"', b'"atlas-max"').replace(b"{", b"{" + more, 1)
    head = (
        f"POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer {gateway.key}\r\ncontent-length: {len(body)}\r\n"
    )
    reply = asyncio.run(send(gateway.url, head.encode() + b"\r\n" + body))
    assert reply.status == 200
    assert "transfer-encoding" not in reply.headers
    assert reply.body.rstrip().endswith(b"data: [DONE]" if more else b"}")


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_head_is_answered_where_get_is(gateway, path):
    assert gateway.http.head(path).status_code == 200


@pytest.mark.parametrize("name", ["Model", "MODEL", "Max_Tokens", "max_to\u212aens", "N", "\u017ftream"])
def test_names_that_some_upstreams_take_for_others_are_refused(gateway, name):
    body = {"model": "atlas-mini", "messages": [{"role": "user", "content": SQL}], name: 1}
    response = gateway.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert "did you mean" in response.json()["error"]["message"]


def test_an_unknown_model_is_not_found(gateway):
    response = gateway.chat(model="nobody")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def ask(gateway, token, **more):
    body = {"model": "auto", "input": SQL} | more
    return gateway.http.post("/v1/responses", json=body, headers={"authorization": f"Bearer {token}"})


def test_a_key_does_not_continue_another_key_s_conversation(gateway, upstream):
    _, other = gateway.store.create_key("other")
    first = ask(gateway, gateway.key)
    given = {"previous_response_id": first.json()["id"], "model": first.headers["x-fedrouter-model"]}
    assert ask(gateway, gateway.key, **given).status_code == 200
    before = len(upstream.bodies)
    refused = ask(gateway, other, **given)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "previous_response_id")
    refused = ask(gateway, other, model=given["model"], conversation="conv_1")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "conversation")
    assert len(upstream.bodies) == before
    assert eventually(lambda: len(list(gateway.store.rows())) >= 2)
