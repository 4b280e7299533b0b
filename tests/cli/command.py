"""Runs `fedrouter` for tests: in this process, which saves importing everything for each command, or in its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from fedrouter.cli.main import main

COMMAND = [str(Path(sys.executable).with_name("fedrouter"))]


@dataclass(frozen=True)
class Done:
    """What a command left: its exit status and everything it printed."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments, cwd=None, **environment) -> Done:
    """Run a command in this process, from the same entry point and with the same exit status as the real one."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["fedrouter", *map(str, arguments)]),
        mock.patch.dict(os.environ, environment),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")  # printed, as in a process of its own
        try:
            main()
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except Exception:
            traceback.print_exc()
            status = 1
    return Done(status, out.getvalue(), err.getvalue())


def answer(*arguments, status=0, **options):
    """The JSON document that a command prints."""
    return _document(run(*arguments, "--json", **options), status)


def run_process(*arguments, cwd=None, timeout=300) -> Done:
    """Run a command as a user does, in a process of its own."""
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout)
    return Done(done.returncode, done.stdout, done.stderr)


def answer_process(*arguments, status=0, **options):
    """The JSON document that a command in a process of its own prints."""
    return _document(run_process(*arguments, "--json", **options), status)


def _document(done: Done, status: int):
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)
