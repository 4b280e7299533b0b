"""Entry point of Flower's processes: ``python -m fedrouter.engines.flower.process_entry PID superlink|supernode …``.

These are Flower's own commands with two additions: an access filter in front of the SuperLink, and an end that comes
with the end of the parent process, so that a killed coordinator or client leaves no process that holds its port.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from fedrouter.engines.flower.version import check_flower


def main() -> None:
    """Run a SuperLink or a SuperNode until it is terminated or its parent process is gone."""
    check_flower()
    parent, kind, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    sys.argv = [f"flower-{kind}", *arguments]
    if kind == "superlink":
        _superlink()
    else:
        from flwr.supernode.cli.flower_supernode import flower_supernode

        flower_supernode()


def _superlink() -> None:
    """Run a SuperLink behind the access filter.

    Flower 1.41.0 has no public way to add middleware to a SuperLink. Its internal hook ``extensions.get_middleware``
    returns that of an edition which is not installed here, so replacing it adds our filter and removes nothing. Flower
    looks the hook up in the module when it builds its application; tests/deployment checks with a running SuperLink
    that the filter is in force.
    """
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    from fedrouter.engines.flower.access_filter import AccessFilter

    extensions.get_middleware = lambda: (Middleware(AccessFilter),)
    flower_superlink()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
