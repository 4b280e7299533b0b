"""The app that a run names. Flower requires one; nothing in it is ever run.

Clients answer with the fedrouter that they installed themselves (:mod:`~fedrouter.engines.flower.node_link`). They
build the same app, compare its digest with the run's, and refuse a run with any other: it was not started by this
software, or by a version that speaks another protocol.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PROTOCOL = "2.0.0"
"""Version of the protocol between coordinator and clients; raised when one side could misunderstand the other."""
PROJECT = f"""
[project]
name = "fedrouter-run"
version = "{PROTOCOL}"
description = "A run of a fedrouter federation"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedrouter"
fab-include = ["fedrouter_run/*.py"]

[tool.flwr.app.components]
serverapp = "fedrouter_run:app"
clientapp = "fedrouter_run:app"
"""


@cache
def build_app() -> bytes:
    """The app as a Flower app bundle, the same bytes wherever it is built."""
    from flwr.cli.build import build_fab_from_files

    files: dict[str, bytes | Path] = {
        "pyproject.toml": PROJECT.encode(),
        "fedrouter_run/__init__.py": b'"""Names a run; holds no code."""\n',
    }
    return build_fab_from_files(files)[0]


@cache
def app_digest() -> str:
    """SHA-256 of the app: how Flower names it."""
    return hashlib.sha256(build_app()).hexdigest()
