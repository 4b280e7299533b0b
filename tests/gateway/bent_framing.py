"""Requests bent outside their bodies: headers, keys, paths, methods, lengths and chunks."""

import random
from collections.abc import Callable

from gateway.case import KNOWN, Case


def a_content_type(draw: random.Random, found: Case) -> None:
    kinds = (
        *(b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"", b"*/*", b";;;"),
        *(b"application/json; charset=utf-16", b"application/json" + b";x" * 3000, b"\xff\xfe", b"application/json\t"),
    )
    found.headers = [(b"content-type", draw.choice(kinds))] if draw.random() < 0.9 else []


def a_setting(draw: random.Random, found: Case) -> None:
    names = (
        b"tradeoff",
        b"dial",
        b"allow",
        b"max-price",
        b"session",
        b"task",
        b"expected",
        b"off",
        b"explain",
        b"",
        b"x",
    )
    values = (
        *(b"1", b"-1", b"nan", b"inf", b"1e999", b"1_0", b"0x10", b"", b"true", b"TRUE", b"*", b"[a-", b"[!]", b",,,"),
        *(
            b"a," * 200,
            b"*" * 150,
            b"?*" * 100,
            b"x" * 5000,
            b"\xe9\xff",
            b"\x80",
            "😀".encode(),
            b"*a" * 90,
            b"1" * 400,
        ),
    )
    for _ in range(draw.choice((1, 1, 2, 10))):
        found.headers.append((b"X-Fedrouter-" + draw.choice(names), draw.choice(values)))


def another_key(draw: random.Random, found: Case) -> None:
    """A key that opens nothing, or a second one beside the good one."""
    found.with_key = draw.random() < 0.3
    keys = (
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic eDp5",
        b"bearer \xff\xfe",
        b"Bearer " + b"x" * 600,
        b"Bearer x y",
        b"Bearer fr-x",
    )
    found.headers.insert(0, (b"authorization", draw.choice(keys)))


def many_headers(draw: random.Random, found: Case) -> None:
    found.odd = True  # a server may find them too many
    found.headers += [(b"x-%d" % number, b"y" * draw.choice((1, 100))) for number in range(draw.choice((50, 500)))]


def in_chunks(draw: random.Random, found: Case) -> None:
    found.chunked = True


def broken_chunks(draw: random.Random, found: Case) -> None:
    """Chunks that end early, or whose sizes are none."""
    found.odd = True
    found.headers.append((b"transfer-encoding", b"chunked"))
    found.body = draw.choice(
        (b"zz\r\nx\r\n0\r\n\r\n", b"ffffffffffffffffff\r\nx", b"-1\r\n\r\n", b"5\r\nabc", b"3\nabc\n0\n\n")
    )


def hung_up(draw: random.Random, found: Case) -> None:
    """The client goes away before its body is complete."""
    found.chunked = draw.random() < 0.3
    found.cut, found.odd = 1 + draw.randrange(len(found.body) + 1), True


def another_length(draw: random.Random, found: Case) -> None:
    found.odd = True
    found.headers.append(
        (b"content-length", draw.choice((b"0", b"-1", b"1e3", b"99999999999999999999", b"+5", b"5, 6", b"x")))
    )


def another_method(draw: random.Random, found: Case) -> None:
    methods = ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "FOO", "post", "PRI", "M-SEARCH")
    found.method, found.odd = draw.choice(methods), True


def another_path(draw: random.Random, found: Case) -> None:
    paths = (
        *("/", "//", "/v1", "/v1/chat/completions/", "/V1/CHAT/COMPLETIONS", "/v1/chat/../route", "/v1/models?x", "*"),
        *("/v1/decisions/%00", "/v1/decisions/%ff%fe", "/v1/decisions/../../etc/passwd", "/v1/decisions/" + "a" * 5000),
        *("/v1/usage?since=nan", "/v1/usage?by=%00", "/v1/usage?since=1e5&since=x", "/v1/usage?" + "a=1&" * 2000),
        *(
            "/v1/route?a=b#c",
            "http://elsewhere.invalid/v1/route",
            "/v1/\xff",
            "/%2e%2e/",
            "/health/ready",
            "/metrics",
            "/x?\xe9",
        ),
        f"/v1/decisions/{KNOWN}",
    )
    found.path, found.odd = draw.choice(paths), True
    if draw.random() < 0.7:
        found.method = "GET"


def another_protocol(draw: random.Random, found: Case) -> None:
    found.odd = True
    if draw.random() < 0.5:
        found.version = draw.choice(("HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "HTTX/1.1", ""))
    else:
        upgrade = [(b"connection", b"Upgrade"), (b"upgrade", draw.choice((b"websocket", b"h2c", b"x")))]
        found.headers += draw.choice(
            (upgrade, [(b"expect", b"100-continue")], [(b"connection", b"close")], [(b"te", b"trailers")])
        )


def header_bytes(draw: random.Random, found: Case) -> None:
    found.odd = True
    lines = (
        (b"x", b"a\0b"),
        (b"x y", b"1"),
        (b"", b"1"),
        (b"x", b"\r\n folded"),
        (b"\xe9", b"1"),
        (b"x", b"1\rGET / HTTP/1.1"),
    )
    found.headers.append(draw.choice(lines))


AROUND: tuple[Callable[[random.Random, Case], None], ...] = (
    *(a_content_type, a_setting, a_setting, a_setting, another_key, many_headers, in_chunks, in_chunks, broken_chunks),
    *(hung_up, another_length, another_method, another_path, another_path, another_protocol, header_bytes),
)
