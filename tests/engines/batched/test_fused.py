"""The kernels of a GPU compute what torch does on the CPU; here in Triton's interpreter, where it is asked for.

With Triton installed: `TRITON_INTERPRET=1 python -m pytest -m slow tests/engines/batched/test_fused.py`. On a GPU
itself benchmarks/batched_gpu.py compares them.
"""

import os

import numpy as np
import pytest

from engines.batched.test_engine import CHANGES, jobs, request
from fedrouter.engines.batched.layout import Layout
from fedrouter.engines.batched.networks import Networks
from fedrouter.engines.batched.plan import HASHED, order_of, steps_of
from fedrouter.engines.batched.recorded import RecordedStack
from fedrouter.engines.batched.stack import Stack

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def interpreted():
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":  # read where kernels are defined, Triton's own too
        pytest.skip("Triton's interpreter was not asked for: set TRITON_INTERPRET=1")


def trained(asked, fused=False, kind=torch.float32, rounds=1):
    given = jobs(asked)
    given = [given[place] for place in order_of(given)]
    layout = Layout.of(asked.weights)
    networks = Networks.of(layout, len(given), "cpu", kind, fused)
    stack = RecordedStack(networks) if fused else Stack.of(given, networks)
    for _ in range(rounds):
        if fused:
            stack.load(given)
        networks.start(layout.pack(asked.weights), asked.heads_only)
        stack.run(steps_of(given, layout, HASHED, torch.float32))
    return networks.parameters.numpy(), stack.losses.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_fused_steps_are_those_of_the_cpu(interpreted, changes):
    asked = request(**changes)
    (ours, our_losses), (theirs, losses) = trained(asked, True, rounds=2), trained(asked)
    assert np.abs(ours - theirs).max() < 2e-5
    assert our_losses == pytest.approx(losses, rel=1e-4)
