"""PostgreSQL databases for tests: in the server that FEDROUTER_POSTGRES names, or in one started for the tests."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def databases() -> Iterator[Callable[[], str]]:
    """Yield a function that creates a database and returns its URL; skip the test where no server can be started."""
    psycopg = pytest.importorskip("psycopg", reason="no psycopg: the [postgres] extra is not installed")
    with _server() as url:
        made: list[str] = []

        def run(statement: str) -> None:
            with psycopg.connect(url("postgres"), autocommit=True) as connection:
                connection.execute(statement)

        def new() -> str:
            name = f"fedrouter_test_{secrets.token_hex(6)}"
            run(f"CREATE DATABASE {name}")
            made.append(name)
            return url(name)

        yield new
        for name in made:
            run(f"DROP DATABASE {name} WITH (FORCE)")


def clear(url: str) -> None:
    """Empty a database and close its other connections; much faster than to create another one."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@contextmanager
def _server() -> Iterator[Callable[[str], str]]:
    """From the name of a database to its URL."""
    given = os.environ.get("FEDROUTER_POSTGRES")
    if given:
        from sqlalchemy.engine import make_url

        yield lambda name: make_url(given).set(database=name).render_as_string(hide_password=False)
        return
    initdb, server = _binary("initdb"), _binary("pg_ctl")
    if not initdb or not server:
        pytest.skip("no PostgreSQL: initdb and pg_ctl are not installed, and FEDROUTER_POSTGRES names no server")
    folder = Path(tempfile.mkdtemp(prefix="fedrouter-pg-"))
    owner = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("no PostgreSQL: it does not run as root, and there is no user postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        owner = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(*command: str) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **owner)

    cluster = str(folder / "cluster")
    run(initdb, "-D", cluster, "-U", "fedrouter", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
    # Nothing in it has to survive a power failure.
    settings = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off -c full_page_writes=off"
    run(server, "-D", cluster, "-w", "-l", str(folder / "log"), "-o", settings, "start")
    try:
        yield lambda name: f"postgresql://fedrouter@/{name}?host={folder}"
    finally:
        run(server, "-D", cluster, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


def _binary(name: str) -> str | None:
    """A PostgreSQL program on the path, or where Debian keeps it."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(kept[-1]) if kept else None)
