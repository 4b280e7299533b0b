"""The verb ``excluded``: the coordinator tells a client that its answer is not used, and why.

Without it the owner of a client that is left out of every run would have to ask the owner of the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import fits_name
from fedrouter.federation.verbs.verb import AlwaysSent, HidesEmbeddings, NoRows, NotASum, Verb

MOST_REASON = 300
"""Maximum number of characters in a reason: it is shown on the client's terminal."""


@dataclass(frozen=True, eq=False)
class ExcludedRequest(Request["Noted"]):
    """The question whose answer is not used, and why."""

    question: Annotated[str, "verb of the question"]
    reason: Annotated[str, "why the answer is not used: one line"]

    def check(self) -> None:
        self.require(fits_name(self.question), "question must be the name of a verb")
        printable = isinstance(self.reason, str) and self.reason.isprintable()
        self.require(printable and 0 < len(self.reason) <= MOST_REASON, "reason must be one line of printable text")


@dataclass(frozen=True, eq=False)
class Noted(Message):
    """The client has noted it; there are no fields."""


def answer(client: ClientView, request: ExcludedRequest) -> Noted:
    return Noted()


def faults(request: ExcludedRequest, reply: Noted) -> str | None:
    return None


def most_bytes(request: ExcludedRequest) -> int:
    """0 bytes."""
    return 0


VERB = Verb(
    name="excluded",
    request=ExcludedRequest,
    reply=Noted,
    purpose="Tell a client that its answer to another question is not used, and why.",
    leaves="Nothing but that it was received.",
    answer=answer,
    disclosure=NoRows("nothing is sent"),
    secure_sum=NotASum("nothing is sent"),
    withheld=AlwaysSent("says nothing about rows"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("nothing is sent"),
)
