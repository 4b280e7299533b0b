"""The encoder's process: equal embeddings, and requests that go on if it ends."""

import asyncio
import logging
import os
import shutil
import signal
import sys

import numpy as np
import pytest

from fedrouter.bundle import load
from fedrouter.encoders.static import static_encoder
from fedrouter.gateway.routing import encoder_process
from fedrouter.gateway.routing.bundles import ServedBundle
from fedrouter.gateway.routing.embedding import Embedder
from fedrouter.gateway.routing.encoder_process import EncoderProcess
from fedrouter.gateway.routing.encoder_worker import LENGTH, estimates_of
from gateway.running import models_named

TEXTS = ["What is 2 + 2?", "Übersetze: «the house»", "def f(x):\n    return x", ""]
DIMENSION = static_encoder().identity().dimension


async def encoded(process, texts):
    found = asyncio.get_running_loop().create_future()
    process.encode(texts, found.set_result)
    batch = await asyncio.wait_for(found, 60)
    return None if batch is None else batch.embeddings


async def until_ready(process):
    while not process.ready:
        await asyncio.sleep(0.01)


async def started():
    process = await EncoderProcess.start(DIMENSION)
    await asyncio.wait_for(until_ready(process), 60)
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
def test_a_process_that_is_killed_leaves_its_batches_to_the_gateway_and_comes_back(caplog):
    async def main():
        process = await started()
        os.kill(process.pid, signal.SIGSTOP)
        waiting = asyncio.ensure_future(encoded(process, TEXTS))
        await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGKILL)
        assert await waiting is None
        assert not process.ready
        await asyncio.wait_for(until_ready(process), 60)  # another one is started
        assert np.array_equal(await encoded(process, TEXTS), static_encoder().encode(TEXTS))
        await process.close()

    with caplog.at_level(logging.ERROR, "fedrouter.gateway"):
        asyncio.run(main())
    assert "the encoder's process has ended" in caplog.text


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_and_prompts_are_encoded_by_the_gateway(monkeypatch):
    monkeypatch.setattr(encoder_process, "PATIENCE", 0.2)

    async def main():
        process = await started()
        embedder = Embedder(static_encoder().encode, 30, 10, lambda: 100, lambda: process if process.ready else None)
        os.kill(process.pid, signal.SIGSTOP)
        found, _ = await embedder.embed(b"digest", TEXTS[0])  # late, but in time
        assert np.array_equal(found, static_encoder().encode(TEXTS[:1])[0])
        embedder.close()
        await process.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_process_that_was_stopped_does_not_hold_up_the_end_of_the_gateway():
    async def main():
        process = await EncoderProcess.start(DIMENSION)
        os.kill(process.pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            await process.close()

    asyncio.run(main())


@pytest.mark.slow
def test_the_process_imports_nothing_from_the_folder_in_which_the_gateway_was_started(tmp_path, monkeypatch):
    (tmp_path / "fedrouter").mkdir()
    for shadow in ("fedrouter/__init__.py", "struct.py"):
        (tmp_path / shadow).write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)

    async def main():
        process = await started()
        assert process.ready
        await process.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_process_whose_gateway_is_killed_in_the_middle_of_a_batch_ends_without_a_word(capfd):
    async def main():
        process = await started()
        os.kill(process.pid, signal.SIGSTOP)
        process.encode(["x" * 1000] * 16, lambda _: None)
        process._transport.write(LENGTH.pack(100) + b"half of")
        await asyncio.sleep(0)
        process._closing = True
        process._transport.abort()
        os.kill(process.pid, signal.SIGCONT)
        await asyncio.to_thread(process._process.wait)

    asyncio.run(main())
    assert capfd.readouterr().err == ""


def test_a_gateway_whose_encoder_gets_no_process_starts_without_one(monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def main():
        process = await EncoderProcess.start(DIMENSION)
        assert not process.ready
        await process.close()

    asyncio.run(main())
    assert "no process for the encoder (FileNotFoundError)" in caplog.text


async def estimated(process, texts):
    found = asyncio.get_running_loop().create_future()
    process.encode(texts, found.set_result)
    return await asyncio.wait_for(found, 60)


@pytest.mark.slow
def test_batches_are_estimated_with_the_bundle_in_service_and_with_no_other(bundle, tmp_path):
    names = load(bundle).router.pool.names

    async def main():
        process = await started()
        assert (await estimated(process, TEXTS)).estimates is None  # it knows of no bundle
        serving = ServedBundle(load(bundle), models_named(*names[:3]))
        process.follow(serving)
        batch = await estimated(process, TEXTS)
        assert batch.served is serving
        expected = estimates_of(serving.router, batch.embeddings)
        np.testing.assert_allclose(batch.estimates, expected)
        found = asyncio.ensure_future(estimated(process, TEXTS))
        await asyncio.sleep(0)
        other = ServedBundle(load(bundle), models_named(*names))
        process.follow(other)  # while a batch is on its way
        assert (await found).served is None
        assert (await estimated(process, TEXTS)).served is other
        gone = tmp_path / "gone"
        shutil.copytree(bundle, gone)
        missing = ServedBundle(load(gone), models_named(*names))
        shutil.rmtree(gone)
        process.follow(missing)
        batch = await estimated(process, TEXTS)
        assert batch.served is None
        assert len(batch.embeddings) == len(TEXTS)
        await process.close()

    asyncio.run(main())
