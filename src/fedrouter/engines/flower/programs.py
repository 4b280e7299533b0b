"""Flower's programs as they are started here, and the app that a run names.

A coordinator's directory has a `FLWR_HOME` of its own with one connection, so that `flwr` commands in it reach its
SuperLink alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from fedrouter.errors import FedrouterError, MissingExtra
from fedrouter.files import make_private_folder, replace_file

CONNECTION: Final = "coordinator"
COMMAND_TIMEOUT: Final = 120.0
NODES, JOB, EVENTS, APP_LOCK = "nodes.json", "job.json", "events.jsonl", "app.lock"
"""Files in a coordinator's directory: ids of nodes by their keys, what a run is asked for, what it reports, and the
lock of whoever performs it."""
PACKAGE: Final = "fedrouter_app"
APP: Final = f"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedrouter-app"
version = "1.0.0"
description = "One epoch of a fedrouter federation"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedrouter"

[tool.flwr.app.components]
serverapp = "{PACKAGE}.server_app:app"
clientapp = "{PACKAGE}.client_relay:app"

[tool.flwr.app.config]
directory = ""
"""
SERVER_HALF: Final = '''\
"""The server's half is in the installed package; only the relay is shipped."""

from fedrouter.engines.flower.server_app import app

__all__ = ["app"]
'''


class FlowerError(FedrouterError):
    """A program of Flower's failed."""


def program(name: str) -> str:
    """Path of one of Flower's programs in this environment."""
    found = shutil.which(name, path=_path())
    try:
        installed = find_spec("flwr") is not None
    except ValueError:  # as for a module that cannot be imported
        installed = False
    if found is None or not installed:
        raise MissingExtra("A federation across machines", "flower")
    return found


def environment(home: Path) -> dict[str, str]:
    """Environment variables of Flower's programs: a folder of their own, no telemetry, no proxy on loopback."""
    # A forwarded address would be believed: the SuperLink has no use for one.
    kept = {name: value for name, value in os.environ.items() if name != "FORWARDED_ALLOW_IPS"}
    direct = ",".join(filter(None, [kept.get("NO_PROXY") or kept.get("no_proxy"), "localhost", "127.0.0.1", "::1"]))
    return kept | {
        "PATH": _path(),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": direct,
        "no_proxy": direct,
    }


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def superlink_command(directory: Path, port: int) -> list[str]:
    """The stock SuperLink, on loopback, with TLS and node keys."""
    return [
        program("flower-superlink"),
        "--host=127.0.0.1",
        f"--port={port}",
        f"--database={directory / 'superlink.db'}",
        f"--ssl-ca-certfile={directory / 'ca.pem'}",
        f"--ssl-certfile={directory / 'server.pem'}",
        f"--ssl-keyfile={directory / 'server.key'}",
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]


def supernode_command(address: str, authority: Path, key: Path, relay: Path, port: int) -> list[str]:
    """The stock SuperNode, which tells the relay where the member's process listens."""
    return [
        program("flower-supernode"),
        f"--superlink={address}",
        f"--root-certificates={authority}",
        f"--auth-supernode-private-key={key}",
        f"--node-config=relay={json.dumps(str(relay))}",
        f"--port={port}",
    ]


def prepare(directory: Path, port: int) -> None:
    """Write the app and the connection to the SuperLink into a coordinator's directory."""
    for folder in (directory / "flower", directory / "app", directory / "app" / PACKAGE):
        make_private_folder(folder)
    authority = json.dumps(str(directory / "ca.pem"))
    replace_file(
        directory / "flower" / "config.toml",
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        f'address = "localhost:{port}"\nroot-certificates = {authority}\n'.encode(),
    )
    replace_file(directory / "app" / "pyproject.toml", APP.encode())
    relay = Path(__file__).with_name("client_relay.py").read_bytes()
    for name, content in (("__init__", b""), ("server_app", SERVER_HALF.encode()), ("client_relay", relay)):
        replace_file(directory / "app" / PACKAGE / f"{name}.py", content)


def read_nodes(directory: Path) -> dict[str, int]:
    """Node ids by node key, as the SuperLink gave them."""
    try:
        return dict(json.loads((directory / NODES).read_bytes()))
    except (OSError, ValueError):
        return {}


@dataclass(frozen=True)
class Flwr:
    """The command `flwr`, on the SuperLink of a coordinator's directory."""

    directory: Path

    def nodes(self) -> dict[int, str]:
        """The nodes whose keys are registered, with their status (``online``, ``offline``, ``registered``)."""
        listed = self._call("supernode", "list")["nodes"]
        return {int(each["node-id"]): str(each["status"]) for each in listed if each["status"] != "unregistered"}

    def register(self, public_key: Path) -> int:
        """Admit a node's key; the node's id."""
        return int(self._call("supernode", "register", str(public_key))["node-id"])

    def run(self) -> str:
        """Start the app on this directory; the run's id."""
        config = f"--run-config=directory={json.dumps(str(self.directory))}"
        return str(self._call("run", str(self.directory / "app"), options=[config])["run-id"])

    def stop(self, run: str) -> None:
        self._call("stop", run)

    def _call(self, *words: str, options: Sequence[str] = ()) -> Mapping[str, Any]:
        command = [program("flwr"), *words, CONNECTION, *options, "--format=json"]
        try:
            done = subprocess.run(
                command,
                env=environment(self.directory / "flower"),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise FlowerError(f"`flwr {words[0]}` did not end within {COMMAND_TIMEOUT:.0f} s") from None
        document = _document(done.stdout)
        if done.returncode or not document.get("success"):
            said = document.get("error-message") or done.stderr.strip() or done.stdout.strip() or "without a message"
            raise FlowerError(f"`flwr {' '.join(words[:2])}` failed: {said}")
        return document


def _document(text: str) -> dict[str, Any]:
    """The JSON that a command has printed, if it has printed any."""
    try:
        found = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
