"""A client that records what it refuses, and what the coordinator did not use, in a private file."""

from __future__ import annotations

from typing import Any

from fedrouter.deployment.state.refusals import RefusalLog
from fedrouter.errors import Refused
from fedrouter.federation.client import Client
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.verbs.excluded import ExcludedRequest
from fedrouter.federation.verbs.masked import MaskedRequest, MaskedVector

WITHHELD = "withheld: it was answered, from the same rows, in a cohort that differs by fewer clients than cohort_gap"


class RecordingClient(Client):
    """A :class:`~fedrouter.federation.client.Client` with a :class:`RefusalLog`."""

    def __init__(self, refusals: RefusalLog, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._refusals = refusals

    def answer(self, verb: str, request: Request[Reply], hidden: bool = False) -> Reply:
        try:
            reply = super().answer(verb, request, hidden)
        except Exception as error:
            if not hidden:  # a hidden answer is part of another one, which is recorded
                self._refusals.refused(verb, error)
            raise
        if isinstance(request, MaskedRequest) and isinstance(reply, MaskedVector):
            for question in reply.withholds:
                self._refusals.refused(request.verbs[question], Refused(WITHHELD, "secure_sum"))
        if isinstance(request, ExcludedRequest):
            self._refusals.excluded(request.question, request.reason)
        return reply
