"""Threads of a gateway: none for matrix products."""

import subprocess
import sys

PROGRAM = """
import numpy, threadpoolctl
from fedrouter.gateway.server import multiply_in_one_thread
multiply_in_one_thread()
print([each["num_threads"] for each in threadpoolctl.threadpool_info()])
"""


def test_the_gateway_multiplies_in_one_thread():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[1]"
