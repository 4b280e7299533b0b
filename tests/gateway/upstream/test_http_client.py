"""The client for upstreams, against raw servers: what it sends, what it reads, and which connections it keeps."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from yarl import URL

from fedrouter.gateway.upstream.http_client import HEAD_LIMIT, PIECE, Broken, HttpClient, Target, Unreachable

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Upstream:
    """Answers each request with the next of some bytes; None closes the connection."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.requests, self.connections, self.tasks = [], 0, []

    async def connected(self, reader, writer):
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        try:
            await self.serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def serve(self, reader, writer):
        try:
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append((head, await reader.readexactly(length)))
                answer = self._answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                if b"length" not in answer and b"chunked" not in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


@asynccontextmanager
async def running(upstream):
    server = await asyncio.start_server(upstream.connected, "127.0.0.1", 0, limit=1 << 20)
    port, client = server.sockets[0].getsockname()[1], HttpClient(5.0)
    try:
        yield client, Target(URL(f"http://127.0.0.1:{port}/v1/chat?a=b"), {"user-agent": "fedrouter", "x-own": "1"})
    finally:
        client.close()
        server.close()
        await asyncio.gather(*upstream.tasks)
        await asyncio.sleep(0)


async def read(client, target, body=b"{}", headers=None):
    response = await client.post(target, headers or {}, body)
    parts = []
    try:
        while part := await response.readany():
            parts.append(part)
    finally:
        response.release()
    return response.status, b"".join(parts)


def exchange(upstream, *bodies):
    """What each of some requests, one after the other, gets."""

    async def all():
        async with running(upstream) as (client, target):
            return [await read(client, target, body) for body in bodies]

    return asyncio.run(all())


def test_a_request_has_the_targets_headers_and_the_clients_in_their_place():
    upstream = Upstream(OK, OK)

    async def both():
        async with running(upstream) as (client, target):
            await read(client, target)
            await read(client, target, b"[]", {"x-own": "2", "traceparent": "t"})

    asyncio.run(both())
    (first, _), (second, body) = upstream.requests
    assert first.startswith(b"POST /v1/chat?a=b HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nx-own: 1\r\ncontent-length: 2\r\n\r\n" in first
    assert b"x-own: 1" not in second
    assert b"\r\nx-own: 2\r\ntraceparent: t\r\n" in second
    assert body == b"[]"
    with pytest.raises(ValueError, match="line break"):
        Target(URL("http://a"), {"x": "1\r\ny: 2"}).head({}, 0)


def test_a_connection_is_used_again():
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nx-after: 1\r\n\r\n"
    upstream = Upstream(OK, chunked, b"HTTP/1.1 100 Continue\r\n\r\n" + OK, OK)
    assert exchange(upstream, b"{}", b"{}", b"{}", b"{}") == [(200, b"ok"), (200, b"abcde"), (200, b"ok"), (200, b"ok")]
    assert upstream.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\n\r\nok",  # ends with its connection
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",  # an answer that nobody asked for
    ],
)
def test_a_connection_that_may_not_be_used_again_is_not(first):
    upstream = Upstream(first, OK)
    assert exchange(upstream, b"{}", b"{}") == [(200, b"ok"), (200, b"ok")]
    assert upstream.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"not HTTP at all, whatever its length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (2 * HEAD_LIMIT),
    ],
)
def test_an_answer_that_breaks_off_or_is_none_is_an_error(answer):
    with pytest.raises(Broken):
        exchange(Upstream(answer), b"{}")


def test_nothing_is_sent_to_an_address_where_nobody_listens():
    async def ask():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await HttpClient(5.0).post(Target(URL(f"http://127.0.0.1:{port}/"), {}), {}, b"")

    with pytest.raises(Unreachable):
        asyncio.run(ask())


def test_a_large_body_arrives_whole_and_one_that_is_refused_midway_is_not_sent_on():
    large = b"x" * (8 * PIECE + 1)
    upstream = Upstream(OK, OK)
    assert exchange(upstream, large, b"{}") == [(200, b"ok"), (200, b"ok")]
    assert upstream.requests[0][1] == large
    assert upstream.connections == 1

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        with suppress(ConnectionError):
            await reader.read()  # until the client goes

    refusing = Upstream()
    refusing.serve = refuse

    async def ask():
        async with running(refusing) as (client, target):
            response = await client.post(target, {}, b"x" * (256 * PIECE))
            found = response.status, await response.readany()
            response.release()
            assert not client.idle
            return found

    assert asyncio.run(ask()) == (413, b"no")


def test_what_was_released_cannot_close_the_next_requests_connection():
    async def ask():
        async with running(Upstream(OK, OK)) as (client, target):
            first = await client.post(target, {}, b"{}")
            assert await first.readany() == b"ok"
            assert first.at_eof()
            first.release()
            second = await client.post(target, {}, b"{}")
            first.close()
            first.release()
            found = await second.readany()
            second.release()
            return found

    assert asyncio.run(ask()) == b"ok"


def test_a_reader_is_woken_when_the_response_is_closed():
    async def ask():
        async with running(Upstream(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")) as (client, target):
            response = await client.post(target, {}, b"{}")
            asyncio.get_running_loop().call_soon(response.close)
            await response.readany()  # as the server goes on waiting for a request

    with pytest.raises(Broken):
        asyncio.run(ask())
