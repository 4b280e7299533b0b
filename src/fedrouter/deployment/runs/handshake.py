"""The handshake of a run: which clients answer, whether their encoders match, and which models they have evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fedrouter.encoders import EncoderIdentity, column_stem
from fedrouter.errors import BadInput
from fedrouter.federation.federation import Federation
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.validation import Report
from fedrouter.federation.verbs.hello import Hello, HelloRequest


@dataclass(frozen=True)
class Handshake:
    """The clients with a common encoder, that encoder, and the models that any of them has evaluated, sorted."""

    federation: Subset
    encoder: EncoderIdentity
    models: tuple[str, ...]


def shake_hands(federation: Federation, report: Report, encoder: EncoderIdentity | None = None) -> Handshake:
    """Ask every client who it is; one with another name than on the roster, or another encoder, is excluded.

    ``encoder`` is that of the bundle to extend; without one, the encoder of most clients is used.
    """
    replies = dict(federation.ask("hello", HelloRequest()))
    for name in [name for name, reply in replies.items() if reply.name != name]:
        report(name, "hello", "gives another name than the one on the roster")
        del replies[name]
    wanted = _key(encoder.name, encoder.dimension) if encoder else _most_common(replies)
    for name, reply in list(replies.items()):
        if _key(reply.encoder, reply.dimension) != wanted:
            report(name, "hello", f"uses another encoder than {wanted[0]} of width {wanted[1]}")
            del replies[name]
    weights = encoder.weights if encoder and encoder.weights else _most_common_weights(replies)
    for name, reply in list(replies.items()):
        if weights and reply.weights and reply.weights != weights:
            report(name, "hello", f"uses other weights of the encoder: {reply.weights} instead of {weights}")
            del replies[name]
    if not replies:
        raise BadInput("no client is left to learn from: none that answered has embeddings of the encoder")
    if encoder is None:
        first = replies[min(replies)]
        # Some embeddings of one encoder may be stored truncated: unit length is recorded only where all have it.
        normalised = all(reply.normalised for reply in replies.values())
        # Likewise the weights: embeddings of unknown origin may be of others.
        known = all(reply.weights for reply in replies.values())
        encoder = EncoderIdentity(first.encoder, first.dimension, normalised, weights if known else None)
    models = sorted({model for reply in replies.values() for model in reply.models})
    return Handshake(Subset(federation, tuple(sorted(replies))), encoder, tuple(models))


def _key(encoder: str, dimension: int) -> tuple[str, int]:
    return column_stem(encoder), dimension


def _most_common(replies: Mapping[str, Hello]) -> tuple[str, int]:
    votes = Counter(_key(reply.encoder, reply.dimension) for reply in replies.values()).most_common(2)
    if not votes:
        raise BadInput("no client to learn from: none answered")
    if len(votes) > 1 and votes[0][1] == votes[1][1]:
        listed = " and ".join(f"{name} of width {width}" for (name, width), _ in votes)
        raise BadInput(f"the clients do not agree on an encoder: equally many use {listed}; name the clients to ask")
    return votes[0][0]


def _most_common_weights(replies: Mapping[str, Hello]) -> str | None:
    """The digest of the encoder's weights that most clients state; None if none does."""
    votes = Counter(reply.weights for reply in replies.values() if reply.weights).most_common(2)
    if len(votes) > 1 and votes[0][1] == votes[1][1]:
        listed = " and ".join(digest for digest, _ in votes)
        raise BadInput(
            f"the clients do not agree on the encoder's weights: equally many use {listed}; name the clients to ask"
        )
    return votes[0][0] if votes else None
