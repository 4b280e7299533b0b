"""The verb ``release``: everything that the family ``bayes`` asks of a member, with the member's own noise in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.errors import BadMessage
from fedrouter.evaluations import Integers
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_ROWS, MOST_WIDTH, SHAPE, TOO_MANY, whole_number
from fedrouter.federation.secagg.encoding import Vector, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    AlwaysSent,
    OwnNoise,
    SecureSum,
    ShowsEmbeddings,
    Verb,
)
from fedrouter.pool import ModelPool
from fedrouter.release import Release

MOST_FEATURES = 84
"""The most features of a map without cells, the constant included."""


@dataclass(frozen=True, eq=False)
class ReleaseRequest(Request["ReleaseReply"]):
    """Asked once; every member sends a full vector, also one of zeros."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]


@dataclass(frozen=True, eq=False)
class ReleaseReply(Message):
    """The release of a member or of several, in units of 2^-16, with noise."""

    vector: Annotated[Integers, "(n,) int64: by model Σφ, then Σφ·accuracy and Σφ·log cost, then one Σψψᵀ"]
    variance: Annotated[int, "variance of the noise in each number, in units of 2^-32"]
    dimension: Annotated[int, "width d of the member's embeddings, from which the feature map follows"]

    def check(self) -> None:
        self.require_array("vector", np.int64, (None,))
        self.require(whole_number(self.variance, 0, 2**62), "variance must be a whole number")
        self.require(whole_number(self.dimension, 1, MOST_WIDTH), "dimension must be a width of embeddings")

    def __add__(self, other: ReleaseReply) -> ReleaseReply:
        self.require(self.dimension == other.dimension, "members embed with different widths")
        return ReleaseReply(self.vector + other.vector, self.variance + other.variance, self.dimension)

    def release(self, pool: ModelPool) -> Release:
        """What was sent, as a release of these models."""
        empty = Release.none(pool, map_of_width(self.dimension))
        self.require(len(self.vector) == len(empty.vector()), "the vector does not fit its models")
        return empty.with_vector(self.vector, float(np.sqrt(self.variance)) / UNIT)


def answer(client: ClientView, request: ReleaseRequest) -> ReleaseReply:
    rows = client.rows.of_models(request.models)
    exact = Release.of(rows, map_of_width(client.dimension))
    # The noise is divided among the clients whose signed lists open this very sum. In the clear nobody else's noise
    # hides this member, so it adds all of it; a number that the coordinator states would be a way to have little.
    noisy = client.noise.on(exact, client.rows.masked or 1) if client.noise else exact
    return ReleaseReply(noisy.vector(), round((noisy.noise * UNIT) ** 2), client.dimension)


def numbers(request: ReleaseRequest) -> int:
    return _size(len(request.models), MOST_FEATURES) + 3


def to_vector(request: ReleaseRequest, reply: ReleaseReply, clients: int) -> Vector:
    # The width is no sum. But n members have the same one only if n times the sum of squares is the sum, squared.
    return flatten(reply.vector, reply.variance, reply.dimension, reply.dimension**2)


def from_vector(request: ReleaseRequest, vector: Vector, clients: int) -> ReleaseReply:
    whole, variance, widths, squares = unflatten(vector, (len(vector) - 3,), (1,), (1,), (1,))
    width = int(widths[0]) // clients
    if (width * clients, width**2 * clients) != (int(widths[0]), int(squares[0])):
        raise BadMessage("ReleaseReply: members embed with different widths")
    return ReleaseReply(whole, int(variance[0]), width)


def faults(request: ReleaseRequest, reply: ReleaseReply) -> str | None:
    features = map_of_width(reply.dimension).width
    if len(reply.vector) != _size(len(request.models), features):
        return SHAPE
    return TOO_MANY if float(np.abs(reply.vector.astype(np.float64)).max(initial=0.0)) > MOST_ROWS * UNIT else None


def most_bytes(request: ReleaseRequest) -> int:
    """8 bytes for each of M · 3 · 84 sums by model and of 3,486 products of features."""
    return 8 * _size(len(request.models), MOST_FEATURES)


def _size(models: int, features: int) -> int:
    return models * 3 * features + features * (features - 1) // 2


def _width(reply: ReleaseReply) -> int | None:
    return reply.dimension


def _no_length(reply: ReleaseReply) -> float | None:
    return None


VERB = Verb(
    name="release",
    request=ReleaseRequest,
    reply=ReleaseReply,
    purpose="Learn a router from one sum over all members, with noise in it.",
    leaves="By model: weighted counts, sums of features and of their products with accuracy and log cost; and one sum "
    "of products of features with each other; all with noise.",
    answer=answer,
    disclosure=OwnNoise(
        "a query moves the vector by at most √(2·0.5² + 1 + 0.3²), whatever it holds; discrete Gaussian noise of the "
        "policy's ε and δ is in the total, though members drop out and a fifth of them collude"
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=AlwaysSent("silence would tell: a member without rows sends noise, too"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=ShowsEmbeddings(_width, _no_length),
)
