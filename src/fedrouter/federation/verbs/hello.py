"""The verb ``hello``: who a client is, and which models it has evaluations of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated

from fedrouter.errors import Refused
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import WIRE_FORMAT, Message, Request
from fedrouter.federation.plausibility import MOST_MODELS, MOST_NAME, MOST_WIDTH, SHAPE, fits_name
from fedrouter.federation.verbs.verb import (
    AlwaysSent,
    HidesEmbeddings,
    MinimumSizes,
    NotASum,
    Verb,
)

MOST_WORDS = 65_536
"""Maximum number of bytes in the names of a reply."""
LEAST_NAMING = 2
"""Number of clients that must name a model for it to enter the pool, unless the operator names it."""


def own_version() -> str:
    """The version of this fedrouter."""
    return version("fedrouter")


@dataclass(frozen=True, eq=False)
class HelloRequest(Request["Hello"]):
    """Asked before anything is learned: the coordinator says which version it is."""

    version: Annotated[str, "the coordinator's version of fedrouter"] = field(default_factory=own_version)
    wire: Annotated[int, "its version of the wire format"] = WIRE_FORMAT

    def check(self) -> None:
        self.require(fits_name(self.version), "version must be printable text")
        self.require(type(self.wire) is int, "wire must be a whole number")


@dataclass(frozen=True, eq=False)
class Hello(Message):
    """The client's name, its encoder, and the models it has enough evaluations of."""

    name: Annotated[str, "the client's name"]
    encoder: Annotated[str, "name of the encoder that made its embeddings"]
    dimension: Annotated[int, "width d of its embeddings"]
    normalised: Annotated[bool, "whether its embeddings have length one"]
    models: Annotated[tuple[str, ...], "names of the models it has enough evaluations of"]
    weights: Annotated[str, "sha256 of the encoder's weights; empty if the client does not know it"] = ""
    version: Annotated[str, "its version of fedrouter"] = field(default_factory=own_version)
    wire: Annotated[int, "its version of the wire format"] = WIRE_FORMAT

    def check(self) -> None:
        self.require(len(self.models) <= MOST_MODELS, f"models must be at most {MOST_MODELS}")
        words = (self.name, self.encoder, *self.models, self.version)
        self.require(all(map(fits_name, words)), f"names must be printable text of 1 to {MOST_NAME} characters")
        self.require(type(self.wire) is int, "wire must be a whole number")
        self.require(type(self.dimension) is int and self.dimension > 0, "dimension must be above 0")
        self.require(type(self.normalised) is bool, "normalised must be true or false")
        self.require(len(set(self.models)) == len(self.models), "models must be named once")
        self.require(isinstance(self.weights, str) and fits_digest(self.weights), "weights must be a sha256 digest")


def answer(client: ClientView, request: HelloRequest) -> Hello:
    if request.wire != WIRE_FORMAT:
        raise Refused(
            f"the coordinator (fedrouter {request.version}) speaks wire format {request.wire}, and this client "
            f"(fedrouter {own_version()}) speaks {WIRE_FORMAT}: install the same version on both sides",
            "version",
        )
    models = client.rows.known_models()
    return Hello(client.name, client.encoder, client.dimension, client.normalised, models, client.weights)


def fits_digest(weights: str) -> bool:
    """Whether a text is ``sha256:`` and 64 hexadecimal digits, or empty."""
    return re.fullmatch("(sha256:[0-9a-f]{64})?", weights) is not None


def faults(request: HelloRequest, reply: Hello) -> str | None:
    return None if reply.dimension <= MOST_WIDTH else SHAPE


def most_bytes(request: HelloRequest) -> int:
    """65,536 bytes of names."""
    return MOST_WORDS


VERB = Verb(
    name="hello",
    request=HelloRequest,
    reply=Hello,
    purpose="Before a run, check that all clients use the same encoder and version, and find the models they know.",
    leaves="The client's name and version, its encoder and a digest of its weights, and the models it has enough "
    "evaluations of.",
    answer=answer,
    disclosure=MinimumSizes(("cell",), "a model is named only if enough different queries were asked of it"),
    secure_sum=NotASum("names do not add up"),
    withheld=AlwaysSent("says who the client is"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("who may take part is decided from the stated width before anything is learned"),
)
