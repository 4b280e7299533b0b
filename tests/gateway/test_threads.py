"""Threads of a gateway: none for matrix products."""

import socket
import subprocess
import sys

import pytest

SHOWN = """
import numpy, threadpoolctl
{code}
print([each["num_threads"] for each in threadpoolctl.threadpool_info()])
"""


def threads_after(code):
    """Threads of numpy's products in a process, once it has run some code; its standard input is a closed channel."""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        command = [sys.executable, "-c", SHOWN.format(code=code)]
        run = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.mark.parametrize("call", ["multiply_in_one_thread", "main"])
def test_the_gateway_and_the_process_beside_it_multiply_in_one_thread(call):
    assert threads_after(f"from fedrouter.gateway.routing import encoder_worker; encoder_worker.{call}()") == "[1]"
