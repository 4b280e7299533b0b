"""What a client remembers within one process."""

import numpy as np

from fedrouter.federation.privacy.memory import ShortMemory


def test_what_is_remembered_is_found_by_its_key_and_taken_once():
    memory = ShortMemory()
    memory.remember("a/one", {"keys": np.arange(3)})
    memory.remember("a/two", {"keys": np.arange(4)})
    memory.remember("b", {"keys": np.arange(5)})
    assert [len(arrays["keys"]) for arrays in memory.remembered("a/")] == [3, 4]
    assert memory.recall("c") is None
    assert len(memory.take("a/one")["keys"]) == 3
    assert memory.take("a/one") is None
    assert [len(arrays["keys"]) for arrays in memory.remembered("a/")] == [4]
