"""Entry point of the SuperLink: ``python -m fedrouter.engines.flower.superlink PID …``.

This is Flower's own command with two additions: an access filter in front of it, and an end that comes with the end of
the parent process, so that a killed coordinator leaves no process that holds its port.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from importlib import import_module
from typing import Any

from fedrouter.engines.flower.version import check_flower

ENDPOINT = "--fedrouter-endpoint="
"""Our own argument: ASGI middleware, ``module:factory``, that the SuperLink has in front of it."""


def main() -> None:
    """Run a SuperLink until it is terminated or its parent process is gone.

    Flower 1.41.0 has no public way to add middleware to a SuperLink. Its internal hook ``extensions.get_middleware``
    returns that of an edition which is not installed here, so replacing it adds our filter and removes nothing. Flower
    looks the hook up in the module when it builds its application; tests/deployment checks with a running SuperLink
    that the filter is in force.
    """
    check_flower()
    parent, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    endpoints = [argument.removeprefix(ENDPOINT) for argument in arguments if argument.startswith(ENDPOINT)]
    sys.argv = ["flower-superlink", *(argument for argument in arguments if not argument.startswith(ENDPOINT))]

    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    from fedrouter.engines.flower.access_filter import AccessFilter

    # In front of the filter: it decides for itself whom it answers.
    front = [Middleware(_imported(name), flower_home=os.environ["FLWR_HOME"]) for name in endpoints]
    extensions.get_middleware = lambda: (*front, Middleware(AccessFilter))
    flower_superlink()


def _imported(name: str) -> Any:
    """The object named ``module:attribute``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
    os._exit(1)  # a shutdown that hangs would hold the port


if __name__ == "__main__":
    main()
