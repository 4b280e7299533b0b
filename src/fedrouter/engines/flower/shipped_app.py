"""The app that a run ships to every client: two imports of the fedrouter that each of them has installed itself."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

PROJECT = """
[project]
name = "fedrouter-run"
version = "{version}"
description = "A run of a fedrouter federation"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedrouter"
fab-include = ["fedrouter_run/*.py"]

[tool.flwr.app.components]
serverapp = "fedrouter_run.server:app"
clientapp = "fedrouter_run.client:app"

[tool.flwr.app.config]
run = ""
"""
SIDE = '"""{title}"""\n\nfrom {module} import {function}\n\napp = {function}()\n'


def build_app(module: str, server: str, client: str) -> bytes:
    """Build a Flower app bundle whose sides are made by two functions of an installed module."""
    from flwr.cli.build import build_fab_from_files

    files: dict[str, bytes | Path] = {
        "pyproject.toml": PROJECT.format(version=version("fedrouter")).encode(),
        "fedrouter_run/__init__.py": b'"""A run of a fedrouter federation."""\n',
        "fedrouter_run/server.py": SIDE.format(title="The server side.", module=module, function=server).encode(),
        "fedrouter_run/client.py": SIDE.format(title="The client side.", module=module, function=client).encode(),
    }
    return build_fab_from_files(files)[0]
