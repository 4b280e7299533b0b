"""A gateway that cannot be opened leaves nothing behind, neither in the process nor in the store."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from fedrouter.errors import BadBundle, FedrouterError
from fedrouter.gateway.gateway import lasting, open_gateway
from gateway.running import config_for


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_config_that_is_partly_wrong_changes_nothing_and_leaks_nothing(bundle, upstream, tmp_path, encoder_of):
    config = config_for(tmp_path, bundle, upstream.url)
    missing = config.routing.replace(bundle=str(tmp_path / "nowhere"))
    wrong = config.replace(routing=missing, store=f"sqlite:///{tmp_path / 'new.db'}")

    async def run() -> None:
        before = await open_gateway(config, encoder_of)
        await before.until_warm()
        gauges, opened = before.metrics.gauges, None
        for _ in range(3):
            with pytest.raises(BadBundle, match="nowhere"):
                await open_gateway(wrong, encoder_of, before=before)
            opened = opened or descriptors()
        assert descriptors() == opened
        assert before.metrics.gauges == gauges
        await before.close()

    asyncio.run(run())


def test_a_bundle_whose_encoder_fails_does_not_become_that_of_the_store(bundle, upstream, tmp_path):
    def broken(texts):
        raise ValueError

    async def run() -> None:
        gateway = await open_gateway(config_for(tmp_path, bundle, upstream.url), lambda identity: broken)
        with pytest.raises(FedrouterError, match="encoder"):
            await gateway.until_warm()
        assert gateway.store.current() is None
        await gateway.close()

    asyncio.run(run())


def test_work_beside_requests_that_fails_begins_again_and_says_where(monkeypatch, caplog):
    monkeypatch.setattr("fedrouter.gateway.gateway.PAUSE", 0.0)
    begun = []

    async def work() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise KeyError("a prompt")

    with suppress(TimeoutError):
        asyncio.run(asyncio.wait_for(lasting(work), 30))
    assert begun == [0, 1, 2]
    assert caplog.text.count("KeyError in lasting:") == 2
    assert "a prompt" not in caplog.text
    assert Path(__file__).name not in caplog.text
