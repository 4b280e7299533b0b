"""The encoder's queue: what requests wait for comes first, and what nobody wants any more is not encoded."""

import asyncio
import threading

import httpx2 as httpx
import numpy as np
import pytest

from fedrouter.gateway.gateway import open_gateway
from fedrouter.gateway.routing.embedding import MAX_WAITING, Embedder, EncoderFailed
from gateway.running import SQL, config_for, eventually


class HeldEncoder:
    """Notes what it encodes, and encodes nothing until it is released."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.begun, self.released = threading.Event(), threading.Event()

    def __call__(self, texts):
        self.begun.set()
        assert self.released.wait(20)
        self.texts += texts
        return np.ones((len(texts), 4), np.float32)


@pytest.fixture
def encoder():
    found = HeldEncoder()
    yield found
    found.released.set()


def run(work, encoder, timeout=0.2):
    async def main():
        embedder = Embedder(encoder, timeout, 10)
        busy = asyncio.ensure_future(embedder.first("warm-up"))
        await asyncio.to_thread(encoder.begun.wait)
        try:
            return await work(embedder, busy)
        finally:
            encoder.released.set()
            embedder.close()

    return asyncio.run(main())


def test_what_nobody_wants_any_more_is_not_encoded(encoder):
    async def work(embedder, busy):
        gone = asyncio.get_running_loop().create_future()
        leaving = [asyncio.ensure_future(embedder.embed(b"%d" % n, f"left {n}", gone)) for n in range(50)]
        await asyncio.sleep(0)
        gone.set_result("client_gone")
        for found, claim in await asyncio.gather(*leaving):
            assert found is None
            claim.release()
        assert (embedder.left, embedder.late) == (50, 0)
        staying = asyncio.ensure_future(embedder.embed(b"stays", "stays"))
        await asyncio.sleep(0)
        encoder.released.set()
        await staying
        await busy

    run(work, encoder, timeout=5)
    assert encoder.texts == ["warm-up", "stays"]


def test_what_a_request_waits_for_comes_before_what_is_wanted_for_the_log(encoder):
    async def work(embedder, busy):
        claims = [embedder.want(b"%d" % n, f"log {n}") for n in range(20)]
        late, claim = await embedder.embed(b"late", "late")
        assert late is None
        waiting = asyncio.ensure_future(embedder.embed(b"waits", "waits"))
        await asyncio.sleep(0)
        encoder.released.set()
        found, _ = await waiting
        while embedder.waiting:
            await asyncio.sleep(0.01)
        assert embedder.peek(b"late") is not None  # its request is still in progress and gets it for its row
        for each in (*claims, claim):
            each.release()
        return found

    assert run(work, encoder) is not None
    assert encoder.texts[:2] == ["warm-up", "waits"]
    assert set(encoder.texts[2:]) == {"late", *(f"log {n}" for n in range(20))}


def test_a_full_queue_has_room_for_a_request_that_waits(encoder):
    async def work(embedder, busy):
        claims = [embedder.want(b"%d" % n, f"log {n}") for n in range(2 * MAX_WAITING)]
        waiting = asyncio.ensure_future(embedder.embed(b"waits", "waits"))
        await asyncio.sleep(0)
        assert embedder.waiting <= MAX_WAITING
        encoder.released.set()
        return (await waiting)[0], claims

    assert run(work, encoder, timeout=5)[0] is not None


def test_clients_that_hung_up_leave_the_encoder_to_others(start, bundle, upstream, tmp_path, encoder_of):
    released = threading.Event()
    encoded = []

    def slow(identity):
        encode = encoder_of(identity)

        def wait(texts):
            encoded.extend(texts)
            if any("hold" in text for text in texts):
                assert released.wait(20)
            return encode(texts)

        return wait

    config = config_for(tmp_path, bundle, upstream.url)
    gateway = start(config.replace(routing=config.routing.replace(encoder_timeout=30)), slow)
    threading.Thread(target=gateway.chat, args=("hold the encoder",), daemon=True).start()
    assert eventually(lambda: "hold the encoder" in encoded)

    def hang_up(number):
        body = {"model": "auto", "messages": [{"role": "user", "content": f"left {number}"}]}
        with pytest.raises(httpx.TimeoutException):
            gateway.http.post("/v1/chat/completions", json=body, timeout=0.5)

    threads = [threading.Thread(target=hang_up, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The gateway has noticed that they are gone.
    assert eventually(lambda: 'asks{outcome="left"} 40.0' in gateway.http.get("/metrics").text, 20)
    released.set()
    assert gateway.chat(SQL).headers["x-fedrouter-reason"] != "encoder_timeout"
    assert not [text for text in encoded if text.startswith("left")]
    assert eventually(lambda: len(list(gateway.store.rows())) == 2)  # the held one may still be on its way


def test_readiness_says_that_the_encoder_is_there_only_once_it_is_loaded(bundle, upstream, tmp_path, encoder_of):
    loaded = threading.Event()

    def loading(identity):
        def wait(texts):
            assert loaded.wait(20)
            return encoder_of(identity)(texts)

        return wait

    async def main():
        gateway = await open_gateway(config_for(tmp_path, bundle, upstream.url), loading)
        waiting = [gateway.embedder.want(b"%d" % n, f"text {n}") for n in range(2 * MAX_WAITING)]
        await asyncio.sleep(0.1)
        before = gateway.warm
        loaded.set()
        await gateway.until_warm()
        for claim in waiting:
            if claim is not None:
                claim.release()
        await gateway.close()
        return before, gateway.warm

    assert asyncio.run(main()) == (False, True)


def test_one_key_cannot_tell_what_another_has_asked(start, bundle, upstream, tmp_path, encoder_of):
    encoded = []

    def counting(identity):
        encode = encoder_of(identity)
        return lambda texts: (encoded.extend(texts), encode(texts))[1]

    gateway = start(config_for(tmp_path, bundle, upstream.url), counting)
    other = {"authorization": f"Bearer {gateway.store.create_key('other')[1]}"}
    for headers in ({}, {}, other, other):
        assert gateway.chat("A secret question.", headers=headers).status_code == 200
    assert encoded.count("A secret question.") == 2  # once for each key: a hit would have been faster


def test_a_fast_encoder_encodes_short_prompts_on_the_event_loop_once_it_is_loaded(encoder):
    encoder.released.set()
    threads = []

    def encode(texts):
        threads.extend((text, threading.current_thread().name) for text in texts)
        return encoder(texts)

    async def main():
        embedder = Embedder(encode, 5, 10, at_once=8)
        found = [await embedder.embed(b"early", "early")]  # not loaded yet: this could take long
        await embedder.first("warm-up")
        found += [await embedder.embed(b"short", "short"), await embedder.embed(b"long", "long text")]
        assert all(embedding is not None and claim is None for embedding, claim in found)
        assert embedder.cached(b"short") is not None
        embedder.close()

    asyncio.run(main())
    loop = threading.current_thread().name
    assert {text for text, thread in threads if thread == loop} == {"short"}
    assert len(threads) == 4


def test_a_fast_encoder_that_fails_says_so_and_keeps_nothing():
    def encode(texts):
        if texts == ["bad"]:
            raise ValueError
        return np.ones((len(texts), 4), np.float32)

    async def main():
        embedder = Embedder(encode, 5, 10, at_once=8)
        await embedder.first("warm-up")
        with pytest.raises(EncoderFailed):
            await embedder.embed(b"bad", "bad")
        assert embedder.cached(b"bad") is None
        assert (embedder.failed, embedder.waiting) == (1, 0)
        embedder.close()

    asyncio.run(main())


def test_an_embedding_that_is_not_finite_counts_as_not_encoded(caplog):
    def encode(texts):
        return np.array([[np.nan, 1.0] if "bad" in text else [0.0, 1.0] for text in texts], np.float32)

    async def main(at_once):
        embedder = Embedder(encode, 5, 10, at_once)
        try:
            await embedder.first("warm-up")
            good, bad = await asyncio.gather(
                embedder.embed(b"1", "good"), embedder.embed(b"2", "bad secret"), return_exceptions=True
            )
            assert good[0].tolist() == [0, 1]
            assert isinstance(bad, EncoderFailed)
            assert embedder.cached(b"2") is None
        finally:
            embedder.close()

    for at_once in (0, 100):
        asyncio.run(main(at_once))
    assert "not finite" in caplog.text
    assert "secret" not in caplog.text
