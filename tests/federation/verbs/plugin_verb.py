"""A verb as another package would write it: how often each model was asked."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.dp.mechanism import Part
from fedrouter.federation.dp.sums import whole_counts
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_ROWS, SHAPE, TOO_MANY
from fedrouter.federation.secagg.encoding import flatten, unflatten
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    MinimumSizes,
    NoisySums,
    SecureSum,
    Verb,
    Withheld,
)


@dataclass(frozen=True, eq=False)
class UseRequest(Request["Use"]):
    """The models to count."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]


@dataclass(frozen=True, eq=False)
class Use(Message):
    """How often each model was asked."""

    count: Annotated[np.ndarray, "(M,) int64: number of rows of each model"]

    def check(self) -> None:
        self.require_array("count", np.int64, (None,))

    def __add__(self, other: "Use") -> "Use":
        return Use(self.count + other.count)


def answer(client: ClientView, request: UseRequest) -> Use:
    rows = client.rows.sendable_by_model(client.rows.of_models(request, request.models))
    return Use(np.bincount(rows.model, minlength=len(request.models)))


def parts(rows, request):
    own = rows.of_models(request, request.models)
    return [Part.of(np.ones(len(own)), own.model, len(request.models), 1.0)]


def faults(request: UseRequest, reply: Use) -> str | None:
    if len(reply.count) != len(request.models) or (reply.count < 0).any():
        return SHAPE
    return TOO_MANY if reply.count.sum() > MOST_ROWS else None


def most_bytes(request: UseRequest) -> int:
    """8 bytes for each model."""
    return 8 * len(request.models)


VERB = Verb(
    name="use",
    request=UseRequest,
    reply=Use,
    purpose="See which models are used.",
    leaves="By model: the number of rows.",
    answer=answer,
    disclosure=MinimumSizes(("cell",), "each count is of enough different queries"),
    differential_privacy=NoisySums(
        "1, by model", parts, lambda terms, request, noisy: Use(whole_counts(noisy[0], terms.least_cell))
    ),
    secure_sum=SecureSum(
        lambda request: len(request.models),
        lambda request, reply, clients: flatten(reply.count),
        lambda request, vector, clients: Use(*unflatten(vector, (len(request.models),))),
        exact=True,
    ),
    withheld=Withheld(
        lambda reply: not reply.count.any(), lambda request: Use(np.zeros(len(request.models), np.int64))
    ),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("counts only"),
)
