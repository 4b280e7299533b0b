"""A gateway killed under load again and again: what a client was told is in the log, and the log stays whole."""

import asyncio
import random
import statistics

import pytest

from gateway.process import GatewayProcess, settings
from gateway.traffic import BEHAVIOURS, Heard, load, missing

SEED = 6
KILLS = 20
LOAD = (20, 400)
"""A kill comes after so many answers, drawn from this range."""


def killed_again_and_again(folder, bundle, url, kills: int, draw: random.Random) -> tuple[Heard, list[float]]:
    gateway, heard, starts = GatewayProcess(folder, settings(folder, bundle, url, BEHAVIOURS)), Heard(), []
    for number in range(kills):
        starts.append(gateway.start())
        before = len(heard.answered)
        asyncio.run(load(gateway.url, gateway.key, heard, draw.randint(*LOAD), f"{SEED} {number}", gateway.kill))
        assert gateway.ended() == -9
        assert not heard.wrong
        assert len(heard.answered) > before
        assert missing(folder / "log.db", heard) == []
    starts.append(gateway.start())  # and once more
    assert gateway.stop() in (0, -15)
    assert "Traceback" not in gateway.printed()
    return heard, starts


@pytest.mark.slow
def test_twenty_kills_under_load_lose_nothing_a_client_was_told(tmp_path, bundle, upstream):
    heard, starts = killed_again_and_again(tmp_path, bundle, upstream.url, KILLS, random.Random(SEED))
    streamed = sum(heard.answered.values())
    print(
        f"\n{KILLS} kills: {len(heard.answered)} complete answers ({streamed} streamed), {len(heard.scored)} scores, "
        f"{heard.broken_off} requests under way; start {statistics.median(starts):.1f} s"
    )
    assert 0 < streamed < len(heard.answered)
    assert heard.scored
    assert heard.broken_off >= KILLS  # each kill hit requests that were under way
    assert missing(tmp_path / "log.db", heard) == []
