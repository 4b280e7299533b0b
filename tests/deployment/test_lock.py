"""The lock of a state directory: one process at a time, found by its pid, and stopped in order."""

import os
import subprocess
import sys
import time

import pytest

from fedrouter.deployment.lock import process_lock, running, stop
from fedrouter.errors import BadInput


@pytest.fixture
def pid_file(tmp_path):
    return tmp_path / "client.pid"


def test_a_directory_has_one_process_at_a_time_and_a_crash_releases_it(pid_file):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from fedrouter.deployment.lock import process_lock\n"
        "with process_lock(Path(sys.argv[1])):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, pid_file], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        assert running(pid_file) == process.pid
        with pytest.raises(BadInput, match=rf"process {process.pid} is already running"), process_lock(pid_file):
            pass
        process.kill()
    assert running(pid_file) is None
    with process_lock(pid_file):
        assert running(pid_file) == os.getpid()
    assert running(pid_file) is None
    assert stop(pid_file) is False


def test_stop_asks_and_waits_until_the_process_has_ended(pid_file):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from fedrouter.deployment.lock import process_lock, stop_signal\n"
        "with process_lock(Path(sys.argv[1])), stop_signal() as stopping:\n"
        "    print('locked', flush=True)\n"
        "    stopping.wait()\n"
        "    time.sleep(1)\n"
        "print('in order')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, pid_file], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        began = time.monotonic()
        assert stop(pid_file) is True
        assert time.monotonic() - began > 0.9
        assert process.stdout.read() == b"in order\n"
    assert process.returncode == 0


def test_an_error_of_the_work_itself_is_not_taken_for_a_held_lock(pid_file):
    with pytest.raises(TimeoutError, match="a socket"), process_lock(pid_file):
        raise TimeoutError("a socket timed out")
    assert running(pid_file) is None


def test_many_processes_that_look_do_not_take_each_other_for_the_one_that_works(pid_file):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedrouter.deployment.lock import running\n"
        "assert {running(Path(sys.argv[1])) for _ in range(300)} == {None}\n"
    )
    with process_lock(pid_file):
        pass
    both = [subprocess.Popen([sys.executable, "-c", program, pid_file]) for _ in range(3)]
    assert [process.wait() for process in both] == [0, 0, 0]
