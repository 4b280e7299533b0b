"""Bundles that were delivered: old ones can be removed, never the one in service or the one before it."""

import os
import time

from fedrouter.deployment.state.delivered import remove_old, set_current
from fedrouter.deployment.state.directories import ClientDirectory

DAY = 86400.0


def test_old_bundles_go_but_not_the_one_in_service_and_the_latest_other(tmp_path):
    directory = ClientDirectory(tmp_path)
    for name, age in {"run-1": 40, "run-2": 30, "run-3": 20, "run-4": 10}.items():
        folder = directory.bundles / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        os.utime(folder, (time.time() - age * DAY,) * 2)
    set_current(directory, {"bundle": str(directory.bundles / "run-1"), "run": "run-1", "digest": ""})
    assert remove_old(directory, time.time() - 15 * DAY) == 2
    assert {path.name for path in directory.bundles.glob("*/")} == {"run-1", "run-4"}
    assert remove_old(directory, time.time()) == 0
    assert remove_old(ClientDirectory(tmp_path / "empty"), time.time()) == 0
