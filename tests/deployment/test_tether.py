"""A program ends with the process that started it, however that ends, and its output is kept."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fedrouter.deployment.program import Program, check_user
from fedrouter.errors import BadInput

TALKS = "import time; print('started', flush=True); time.sleep(600)"


def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_output_is_logged_and_the_program_ends_in_order(tmp_path):
    log = tmp_path / "x.log"
    program = Program([sys.executable, "-c", TALKS], log, os.environ)
    until(lambda: log.exists() and "started" in log.read_text())
    assert not program.ended
    program.end()
    assert program.ended
    assert oct(log.stat().st_mode)[-3:] == "600"


def test_a_program_that_ends_says_so_even_if_a_child_of_it_goes_on(tmp_path):
    log = tmp_path / "x.log"
    forks = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.exit(3)"
    program = Program([sys.executable, "-c", forks], log, os.environ)
    until(lambda: program.ended)
    until(lambda: log.exists() and program.last_lines())
    child = int(program.last_lines().split()[-1])
    until(lambda: not alive(child))
    program.end()


def test_a_kill_of_whoever_started_it_ends_the_program(tmp_path):
    log = tmp_path / "x.log"
    starts = (
        "import os, sys, time; from pathlib import Path; from fedrouter.deployment.program import Program\n"
        f"Program([sys.executable, '-c', '''import os; print(os.getpid(), flush=True); {TALKS}'''], "
        f"Path({str(log)!r}), os.environ)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", starts]) as parent:
        until(lambda: log.exists() and "started" in log.read_text())
        pid = int(log.read_text().split()[1])
        assert alive(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        until(lambda: not alive(pid))


def test_a_user_who_does_not_exist_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such user"):
        check_user("nobody-of-this-name", tmp_path)
