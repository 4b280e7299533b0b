"""What a client remembers of many rows is in a file, and comes back as it was."""

import numpy as np

from fedrouter.federation.privacy import memory as module
from fedrouter.federation.privacy.memory import ShortMemory


def test_large_arrays_come_back_as_they_were(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 64)
    memory = ShortMemory()
    large = {"keys": np.arange(100, dtype=np.uint64)[::2], "none": np.zeros(0), "table": np.eye(3, dtype=np.float32)}
    small = {"keys": np.arange(3)}
    memory.remember("a/large", large)
    memory.remember("a/small", small)
    large["keys"] = large["keys"] + 1  # what was remembered stays
    found = memory.recall("a/large")
    assert found["keys"].tolist() == list(range(0, 100, 2))
    assert (found["keys"].dtype, found["none"].shape) == (np.uint64, (0,))
    assert np.array_equal(found["table"], np.eye(3))
    assert [arrays["keys"][1] for arrays in memory.remembered("a/")] == [2, 1]
    assert memory.take("a/large")["table"].sum() == 3
    assert memory.recall("a/large") is None
