"""A coordinator without Flower: one epoch with members' own processes over their sockets, as the relay reaches them.

``python -m deployment.epoch_over_sockets COORDINATOR RELAYS EXCHANGE OUTCOME`` kills itself at the first such event.
"""

import os
import signal
import sys
import time
from pathlib import Path

from fedrouter.engines.flower.client_relay import ask
from fedrouter.federation.coordinator import Coordinator
from fedrouter.federation.epoch import Job, run_epoch

JOB = Job(epsilon=0.0, least_rows=0, consent=True, seconds=120.0)


class OverSockets:
    """A link that asks again for as long as a member's process is not there."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def exchange(self, messages, seconds, on_reply):
        end = time.monotonic() + seconds
        for name, content in messages.items():
            if (reply := self.ask(name, content, end)) is not None:
                on_reply(name, reply)

    def ask(self, name, content, end):
        while time.monotonic() < end:
            try:
                return ask(self.folder / name, content)
            except OSError:
                time.sleep(0.1)
        return None


def main(directory, folder, exchange, outcome):
    def on_event(event):
        if (event.exchange, event.outcome) == (exchange, outcome):
            os.kill(os.getpid(), signal.SIGKILL)

    run_epoch(Coordinator(Path(directory)), OverSockets(folder), JOB, on_event)


if __name__ == "__main__":
    main(*sys.argv[1:])
