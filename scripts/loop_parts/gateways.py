"""One organization's gateway as a separate process, and the commands that its operator would run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from fedrouter.bundle import Bundle
from fedrouter.errors import FedrouterError
from loop_parts.organizations import CHARACTERS

FEDROUTER = str(Path(sys.executable).with_name("fedrouter"))
TRADEOFF = 25.0
EXPLORE = {"share": 0.5, "extra_cost": 0.5}
START_WITHIN, SWITCH_WITHIN = 300.0, 60.0
"""Seconds."""


@dataclass(frozen=True, eq=False)
class Gateway:
    """A running gateway."""

    name: str
    folder: Path
    process: asyncio.subprocess.Process
    url: str
    key: str

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'log.db'}"

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()

    async def use(self, http: aiohttp.ClientSession, bundle: Bundle) -> float:
        """Run `fedrouter bundle use`; returns the seconds until the gateway serves that router."""
        await command("bundle", "use", str(bundle.path), "--store", self.store)
        begun = time.perf_counter()
        while time.perf_counter() - begun < SWITCH_WITHIN:
            async with http.get(f"{self.url}/health/ready") as response:
                health = await response.json()
            if health["bundle_refused"]:
                break
            if health["bundle_version"] == bundle.version:
                return time.perf_counter() - begun
            await asyncio.sleep(0.05)
        raise FedrouterError(f"{self.name}: version {bundle.version} did not go into service; see {self._log}")

    @property
    def _log(self) -> Path:
        return self.folder / "gateway.log"


async def start(name: str, folder: Path, upstream: str, bundle: Path) -> Gateway:
    """Run `fedrouter serve`; returns when it has printed its address and key."""
    folder.mkdir(parents=True)
    config, log = folder / "gateway.yaml", folder / "gateway.log"
    config.write_text(yaml.safe_dump(_config(folder, upstream, bundle), sort_keys=False))
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(FEDROUTER, "serve", "--config", str(config), "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # several encoders share this machine
        )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_WITHIN)
        ready = json.loads(line)
    except (TimeoutError, ValueError):
        if process.returncode is None:
            process.kill()
        raise FedrouterError(f"the gateway of {name} did not start; see {log}") from None
    return Gateway(name, folder, process, ready["url"], ready["key"])


def _config(folder: Path, upstream: str, bundle: Path) -> dict[str, Any]:
    return {
        "store": f"sqlite:///{folder / 'log.db'}",
        "server": {"port": 0},
        "routing": {
            "bundle": str(bundle),
            "default_model": "beacon-large",
            "baseline_model": "beacon-large",
            "tradeoff": TRADEOFF,
            "explore": EXPLORE,
            "region": -1.0,  # the first router has no regions: its only centre is equally similar to every query
            "encoder_timeout": 60.0,  # wait for the encoder instead of using the default model
        },
        "model_list": [
            {
                "model_name": character.model.name,
                "params": {"api_base": upstream},
                "input_price": character.model.input_price,
                "output_price": character.model.output_price,
            }
            for character in CHARACTERS
        ],
    }


async def command(*arguments: str) -> dict[str, Any]:
    """Run `fedrouter` with these arguments; returns its JSON output."""
    process = await asyncio.create_subprocess_exec(
        *(FEDROUTER, *arguments, "--json"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate()
    if process.returncode:
        raise FedrouterError(f"fedrouter {' '.join(arguments)}: {errors.decode().strip()}")
    found: dict[str, Any] = json.loads(out)
    return found


async def stop_all(gateways: Sequence[Gateway]) -> None:
    await asyncio.gather(*(gateway.stop() for gateway in gateways))
