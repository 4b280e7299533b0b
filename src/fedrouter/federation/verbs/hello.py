"""The verb ``hello``: who a client is, and which models it has evaluations of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_WIDTH, SHAPE
from fedrouter.federation.verbs.verb import HidesEmbeddings, MinimumSizes, NoNoiseNeeded, NoRobust, NotASum, Verb

MOST_WORDS = 65_536
"""Maximum number of bytes in the names of a reply."""


@dataclass(frozen=True, eq=False)
class HelloRequest(Request["Hello"]):
    """Asked before anything is learned; it has no fields of its own."""


@dataclass(frozen=True, eq=False)
class Hello(Message):
    """The client's name, its encoder, and the models it has enough evaluations of."""

    name: Annotated[str, "the client's name"]
    encoder: Annotated[str, "name of the encoder that made its embeddings"]
    dimension: Annotated[int, "width d of its embeddings"]
    normalised: Annotated[bool, "whether its embeddings have length one"]
    models: Annotated[tuple[str, ...], "names of the models it has enough evaluations of"]
    weights: Annotated[str, "sha256 of the encoder's weights; empty if the client does not know it"] = ""

    def check(self) -> None:
        words = (self.name, self.encoder, *self.models)
        self.require(all(isinstance(word, str) and word.strip() for word in words), "names must not be empty")
        self.require(type(self.dimension) is int and self.dimension > 0, "dimension must be above 0")
        self.require(type(self.normalised) is bool, "normalised must be true or false")
        self.require(len(set(self.models)) == len(self.models), "models must be named once")
        self.require(isinstance(self.weights, str) and fits_digest(self.weights), "weights must be a sha256 digest")


def answer(client: ClientView, request: HelloRequest) -> Hello:
    declared = client.declared_models
    models = client.rows.known_models() if declared is None else declared
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
    purpose="Before a run, check that all clients use the same encoder, and find the models they know.",
    leaves="The client's name, its encoder and a digest of its weights, and the models it has enough evaluations of.",
    answer=answer,
    disclosure=MinimumSizes(("cell",), "a model is named only if enough different queries were asked of it"),
    differential_privacy=NoNoiseNeeded("the models are those that the client declares, not those in its rows"),
    secure_sum=NotASum("names do not add up"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("who may take part is decided from the stated width before anything is learned"),
    robust=NoRobust("names are not averaged"),
)
