"""Upstreams that compress their answers although they were asked not to."""

import asyncio
import gzip
import zlib

import pytest

from fedrouter.gateway.upstream import upstreams
from fedrouter.gateway.upstream.bodies import UNPACKED, Unpacked
from fedrouter.gateway.upstream.http_client import Broken
from gateway.running import NAMES, PATIENT, config_for, events
from gateway.upstreams import CHUNKS, completion

WAYS = ("packed/gzip", "packed/deflate", "packed/br", "packed/gzip/cut", "packed/gzip/3000000")


class Pieces:
    """A body that comes in pieces of some size."""

    def __init__(self, body: bytes, size: int) -> None:
        self._left = [body[start : start + size] for start in range(0, len(body), size)]

    async def readany(self) -> bytes:
        return self._left.pop(0) if self._left else b""

    def at_eof(self) -> bool:
        return not self._left


async def unpacked(body, size) -> list[bytes]:
    content, found = Unpacked(Pieces(body, size)), []
    while piece := await content.readany():
        found.append(piece)
    assert content.at_eof()
    return found


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_what_was_compressed_comes_out_in_small_pieces(size):
    said = bytes(range(256)) * 4 + b"x" * 500_000
    for body in (gzip.compress(said), zlib.compress(said), gzip.compress(said[:900]) + gzip.compress(said[900:])):
        found = asyncio.run(unpacked(body, size))
        assert b"".join(found) == said
        assert max(map(len, found)) <= UNPACKED


# Named, because gzip writes the time of day: test processes that collect a second apart must find the same tests.
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(gzip.compress(b"word" * 99)[:-9], id="cut-short"),
        pytest.param(b"not packed", id="not-packed"),
        pytest.param(gzip.compress(b"a") + b"rubbish", id="rubbish-after"),
    ],
)
def test_a_body_that_is_broken_is_an_error(body):
    with pytest.raises(Broken):
        asyncio.run(unpacked(body, 10))


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    """Answers of up to a megabyte are taken."""
    behaviors = dict(zip(NAMES, WAYS, strict=False))
    timing = PATIENT.replace(retries=0)
    folder = tmp_path_factory.mktemp("packed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstreams, "ANSWER_LIMIT", 1 << 20)
        found = start(config_for(folder, bundle, upstream.url, behaviors, timing=timing))
    found.of = {way: name for name, way in behaviors.items()}
    return found


@pytest.mark.parametrize("way", ["packed/gzip", "packed/deflate"])
def test_a_compressed_answer_is_passed_on_unpacked_and_priced_by_its_usage(gateway, way):
    plain = gateway.chat(model=gateway.of[way])
    assert (plain.status_code, plain.content) == (200, completion(way))
    streamed = gateway.chat(model=gateway.of[way], stream=True)
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert len(events(streamed)) == CHUNKS + 2  # the usage was not asked for
    for response in (plain, streamed):
        assert "content-encoding" not in response.headers
        record = gateway.record(response)
        assert (record.status, record.input_tokens, record.output_tokens, record.estimated) == ("ok", 10, 5, False)


@pytest.mark.parametrize("way", ["packed/br", "packed/gzip/cut", "packed/gzip/3000000"])
def test_one_that_cannot_be_unpacked_or_is_too_large_is_a_failure(gateway, way):
    response = gateway.chat(model=gateway.of[way])
    assert (response.status_code, gateway.record(response).status) == (502, "upstream_error")
