"""A gateway as a process of its own, so that a test can kill it, weigh it and read everything it printed.

Run as a script it serves a config file: `process.py gateway.yaml [WORKERS]`; embeddings are the simulated world's,
so that no encoder has to load.
"""

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrouter.data.simulator import CAST

PATIENCE = 60
"""Seconds a gateway may take to start on a machine that is busy."""


def settings(folder: Path, bundle: Path, url: str, behaviors: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A config of the simulated cast at one upstream; a model behaves as ``behaviors`` says, or answers at once.

    Every model speaks every API.
    """
    behaviors = behaviors or {}
    models = [
        {
            "model_name": character.model.name,
            "params": {
                "api_base": url,
                "model": behaviors.get(character.model.name, behaviors.get("*", "instant")),
                "api_key": "os.environ/UPSTREAM_KEY",
                "api": ["chat", "responses", "messages", "completions", "embeddings"],
            },
            "input_price": character.model.input_price,
            "output_price": character.model.output_price,
            "context": character.model.context,
        }
        for character in CAST
    ]
    return {
        "store": f"sqlite:///{folder / 'log.db'}",
        "server": {"port": 0},
        "routing": {"bundle": str(bundle), "default_model": "atlas-mini", "baseline_model": "atlas-max"},
        "timing": {"retries": 1, "answer": 20, "breaker_rest": 0},
        "model_list": models,
    }


class GatewayProcess:
    """Started in a folder that holds its config, its log and what it printed; starts again on the same log."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        workers: int | None = None,
    ) -> None:
        self.folder, self._more = folder, [] if workers is None else [str(workers)]
        self.key: str | None = None
        self.url = ""
        (folder / "gateway.yaml").write_text(json.dumps(config))  # JSON is YAML
        self._environment = {**os.environ, "UPSTREAM_KEY": "upstream-secret", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Returns when it serves, with the seconds that took."""
        begun = time.monotonic()
        with (self.folder / "stdout").open("ab") as out, (self.folder / "stderr").open("ab") as err:
            said = out.tell()
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(self.folder / "gateway.yaml"), *self._more],
                stdout=out,
                stderr=err,
                env=self._environment,
            )
        while not (line := (self.folder / "stdout").read_bytes()[said:]).endswith(b"\n"):
            assert self._process.poll() is None, f"it ended instead of starting: {self.printed()[-2000:]}"
            assert time.monotonic() - begun < PATIENCE, "it did not start"
            time.sleep(0.02)
        ready = json.loads(line)
        self.url, self.key = ready["url"], ready["key"] or self.key
        return time.monotonic() - begun

    def workers(self) -> list[int]:
        """The processes under its supervisor."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: nothing of the process runs after this line."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def stop(self) -> int:
        """Its exit code after it was asked to stop."""
        if self.alive():
            os.kill(self.pid, signal.SIGTERM)
        return self.ended()

    def megabytes(self) -> float:
        """Memory that is its own now."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        """CPU time that it has used so far."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def printed(self) -> str:
        return "".join((self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))


def main(path: str, workers: str | None = None) -> None:
    from fedrouter.cli.gateway.serve import announce
    from fedrouter.cli.output import Voice
    from fedrouter.data.simulator import simulated_world
    from fedrouter.gateway.config_file import read_config
    from fedrouter.gateway.gateway import open_gateway
    from fedrouter.gateway.server import serve, serve_by_workers
    from fedrouter.gateway.workers import current_worker

    def ready(url, key):
        announce(Voice(True), url, key)

    if workers is not None and current_worker() is None:
        serve_by_workers(read_config(path).server, int(workers), ready, lambda: read_config(path))
        return
    count = int(workers or 1)
    embeddings = simulated_world().evaluations.embeddings
    config = read_config(path)

    def encode(texts):
        if any("broken encoder" in text for text in texts):
            raise ValueError(texts)
        return embeddings[[zlib.crc32(text.encode()) % len(embeddings) for text in texts]]

    async def reopened(before):
        return await open_gateway(read_config(path), lambda identity: encode, before=before, workers=count)

    serve(
        config,
        ready,
        lambda: open_gateway(config, lambda identity: encode, workers=count),
        reopened=reopened,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
