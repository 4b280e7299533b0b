"""Replays: bundles are kept for the next one, but not the gateway that a reload has replaced."""

import gc
import weakref

from fedrouter.gateway.page.decisions import REPLAYED, prepared


class Loading:
    """Stands in for a gateway and its bundles: it counts what it loads."""

    def __init__(self) -> None:
        self.bundles, self.loaded = Bundles(), []
        self.bundles.loaded = self.loaded


class Bundles:
    loaded: list[str]

    def at(self, path, digest):
        self.loaded.append(digest)
        return object()


def test_a_bundle_is_kept_for_the_next_replay_and_the_gateway_only_while_it_lives():
    gateway = Loading()
    assert prepared(gateway, "path", "a") is prepared(gateway, "path", "a")
    for number in range(REPLAYED):
        prepared(gateway, "path", str(number))
    prepared(gateway, "path", "a")
    assert gateway.loaded.count("a") == 2  # only the latest are kept
    gone = weakref.ref(gateway)
    del gateway
    gc.collect()
    assert gone() is None
