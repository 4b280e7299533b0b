"""The client's loop: ask for questions, answer them in this process, and send the answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedrouter.engines.flower.answering import answer_exchange
from fedrouter.engines.flower.node_link import NodeLink, RunOver
from fedrouter.errors import BadMessage
from fedrouter.federation.client import Client

EAGER, IDLE = 0.1, 1.0
"""Seconds between two requests for questions: right after one, when the next is near, and at rest."""
SHARE = 0.1
"""In between, the pause is this share of the time since the last question: it delays little and costs little."""


def answer_questions(
    link: NodeLink,
    client_for: Callable[[int], Client],
    wait: Callable[[float], bool],
    on_message: Callable[[str], None],
) -> None:
    """Answer until ``wait(seconds)`` returns True; ``client_for`` returns the client for a run."""
    last = time.monotonic() - IDLE / SHARE
    while not wait(pause(time.monotonic() - last)):
        try:
            last = last if not answer_one(link, client_for, on_message) else time.monotonic()
        except RunOver:
            pass  # stopped in the meantime; nobody waits for the answer
        except BadMessage as error:
            on_message(f"dropped what the coordinator sent ({error})")


def answer_one(link: NodeLink, client_for: Callable[[int], Client], on_message: Callable[[str], None]) -> bool:
    """Answer one message; False if there is none."""
    incoming = link.receive()
    if incoming is None:
        return False
    if not link.trusts(incoming.run):
        on_message("refused a run: its app is not the one of this fedrouter")
        link.refuse(incoming, untrusted=True)
        return True
    began = time.monotonic()
    verbs: list[str] = []
    try:
        content = answer_exchange(incoming.content, lambda: client_for(incoming.run), verbs.append)
    except BadMessage:
        link.refuse(incoming, untrusted=False)
        raise
    on_message(f"request: {', '.join(dict.fromkeys(verbs))}")
    if time.time() > incoming.deadline:
        # The others have gone on without this client. Its vector of a joint sum would complete a total from which
        # theirs, without it, can be subtracted.
        on_message("not sent: the answer took longer than the coordinator waits")
        return True
    link.send(incoming, content, time.monotonic() - began)
    return True


def pause(since: float) -> float:
    """Seconds to wait, given the seconds since the last question."""
    return min(IDLE, max(EAGER, SHARE * since))
