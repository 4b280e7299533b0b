"""Entry of the processes that run Flower: ``python -m fedrouter.deployment.flower_process superlink|supernode …``.

They are Flower's own commands with two things added: a gate before the SuperLink, and an end that comes with the end of
the process that started them, so that a killed coordinator or client leaves nothing behind that holds its port.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time


def main() -> None:
    parent, kind, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    sys.argv = [f"flower-{kind}", *arguments]
    if kind == "superlink":
        _superlink()
    else:
        from flwr.supernode.cli.flower_supernode import flower_supernode

        flower_supernode()


def _superlink() -> None:
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    from fedrouter.deployment.gate import Gate

    # Flower's hook for middleware before its own; it is otherwise filled by an edition that is not installed here.
    extensions.get_middleware = lambda: (Middleware(Gate),)
    flower_superlink()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
