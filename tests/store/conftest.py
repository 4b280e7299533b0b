"""Stores for tests: a SQLite file, and as a slow test a database in a PostgreSQL server that is started for it."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fedrouter.store import Record, new_id

NUMBER = itertools.count()


def _binary(name: str) -> str | None:
    """A PostgreSQL program on the path, or where Debian keeps it."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(kept[-1]) if kept else None)


@pytest.fixture(scope="session")
def postgres():
    """The URL of a fresh PostgreSQL server, less the name of a database."""
    initdb, server = _binary("initdb"), _binary("pg_ctl")
    if not initdb or not server:
        pytest.skip("no PostgreSQL: initdb and pg_ctl are not installed")
    pytest.importorskip("psycopg", reason="no psycopg: the [postgres] extra is not installed")
    folder = Path(tempfile.mkdtemp(prefix="fedrouter-pg-"))
    owner = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("no PostgreSQL: it does not run as root, and there is no user postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        owner = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(*command):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **owner)

    cluster = str(folder / "cluster")
    run(initdb, "-D", cluster, "-U", "fedrouter", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
    settings = f"-c listen_addresses='' -c unix_socket_directories='{folder}'"
    run(server, "-D", cluster, "-w", "-l", str(folder / "log"), "-o", settings, "start")
    try:
        yield lambda name: f"postgresql://fedrouter@/{name}?host={folder}"
    finally:
        run(server, "-D", cluster, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request, tmp_path):
    """A place for a new store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'log.db'}"
    import psycopg

    at = request.getfixturevalue("postgres")
    name = f"store_{next(NUMBER)}"
    with psycopg.connect(at("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return at(name)


@pytest.fixture(scope="session")
def made():
    """Makes records: request ``number``, one a minute, with its own embedding."""

    def make(number=0, **fields):
        at = fields.pop("time", 1_700_000_000.0 + 60 * number)
        draw = np.random.default_rng(number)
        settled = {
            "id": new_id(at),
            "time": at,
            "key": "key-1",
            "bundle": "sha256:0",
            "version": 1,
            "family": "kmeans",
            "tradeoff": 10.0,
            "chosen": "large",
            "served": "large",
            "reason": "routed",
            "predicted_cost": 0.002,
            "predicted_accuracy": 0.7,
            "embedding": draw.normal(size=8).astype("<f4").tobytes(),
            "encoder": "all-MiniLM-L6-v2",
            "input_tokens": 100,
            "output_tokens": 20,
            "cost": 0.001,
            "baseline_cost": 0.004,
            "latency_ms": 12.5,
            "overhead_ms": 0.5,
        }
        return Record(**(settled | fields))

    return make
