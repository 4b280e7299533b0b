"""The encoder's process: equal embeddings, and requests that go on if it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import numpy as np
import pytest

from fedrouter.encoders.static import static_encoder
from fedrouter.gateway.routing.encoder_process import EncoderProcess

TEXTS = ["What is 2 + 2?", "Übersetze: «the house»", "def f(x):\n    return x", ""]
DIMENSION = static_encoder().identity().dimension


async def encoded(process, texts):
    found = asyncio.get_running_loop().create_future()
    process.encode(texts, found.set_result)
    return await asyncio.wait_for(found, 60)


async def started():
    process = await EncoderProcess.start(DIMENSION)
    await encoded(process, [""])  # after the one that says that it is loaded
    return process


@pytest.mark.slow
def test_embeddings_are_those_of_the_encoder_and_the_process_ends_with_its_socket():
    async def main():
        process = await started()
        assert process.ready
        both = await asyncio.gather(encoded(process, TEXTS), encoded(process, TEXTS[:1]))
        assert await encoded(process, ["a lone surrogate: \ud800"]) is None  # which the gateway encodes by itself
        os.kill(process.pid, signal.SIGTERM)  # meant for the gateway, which still has requests
        assert np.array_equal(await encoded(process, TEXTS), both[0])
        await process.close()
        return both

    whole, one = asyncio.run(main())
    assert np.array_equal(whole, static_encoder().encode(TEXTS))
    assert np.array_equal(one[0], whole[0])


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_its_batches_to_the_gateway(caplog):
    async def main():
        process = await started()
        os.kill(process.pid, signal.SIGSTOP)
        waiting = asyncio.ensure_future(encoded(process, TEXTS))
        await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGKILL)
        assert await waiting is None
        assert not process.ready
        await process.close()

    with caplog.at_level(logging.ERROR, "fedrouter.gateway"):
        asyncio.run(main())
    assert "the encoder's process has ended" in caplog.text
