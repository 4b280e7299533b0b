"""Threads of a gateway: none for matrix products."""

import socket
import subprocess
import sys

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


def test_products_are_made_in_one_thread():
    assert (
        threads_after("from fedrouter.gateway.routing.encoder_worker import multiply_in_one_thread as one; one()")
        == "[1]"
    )


def test_the_process_beside_the_gateway_multiplies_in_one_thread():
    assert threads_after("from fedrouter.gateway.routing.encoder_worker import main; main()") == "[1]"
