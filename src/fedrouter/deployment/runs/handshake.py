"""The handshake of a run: which clients fit together, and which models they have evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedrouter.encoders import EncoderIdentity, column_stem
from fedrouter.errors import BadInput
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import WIRE_FORMAT
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.validation import Report
from fedrouter.federation.verbs.hello import LEAST_NAMING, Hello, HelloRequest, own_version


@dataclass(frozen=True)
class Handshake:
    """The clients that can learn together, and what they have in common.

    Parameters
    ----------
    federation : the clients with a common wire format and encoder
    encoder : that encoder
    models : every model that one of them has enough evaluations of, with the clients that name it, sorted
    """

    federation: Subset
    encoder: EncoderIdentity
    models: Mapping[str, tuple[str, ...]]

    def shared_models(self) -> tuple[str, ...]:
        """The models that two clients name, or all if there is only one client: a liar cannot add one alone."""
        least = min(LEAST_NAMING, len(self.federation.clients()))
        return tuple(model for model, clients in self.models.items() if len(clients) >= least)


def shake_hands(federation: Federation, report: Report, encoder: EncoderIdentity | None = None) -> Handshake:
    """Ask every client who it is; one that does not fit the roster or the others is excluded with a reason.

    ``encoder`` is that of the bundle to extend; without one, the encoder of most clients is used.
    """
    replies = dict(federation.ask("hello", HelloRequest()))

    def exclude(unfit: Callable[[str, Hello], str | None]) -> None:
        for name, reply in list(replies.items()):
            reason = unfit(name, reply)
            if reason:
                report(name, "hello", reason)
                del replies[name]

    exclude(_another_name)
    exclude(_another_wire_format)
    wanted = _key(encoder.name, encoder.dimension) if encoder else _most_common(replies)
    exclude(
        lambda _, reply: (
            f"uses the encoder {reply.encoder} of width {reply.dimension}, not {wanted[0]} of width {wanted[1]}; its "
            "`fedrouter federation client --encoder` chooses another"
            if _key(reply.encoder, reply.dimension) != wanted
            else None
        )
    )
    weights = encoder.weights if encoder and encoder.weights else _most_common_weights(replies)
    exclude(
        lambda _, reply: (
            f"uses other weights of the encoder: {reply.weights} instead of {weights}"
            if weights and reply.weights and reply.weights != weights
            else None
        )
    )
    if not replies:
        raise BadInput("no client is left to learn from: none that answered has embeddings of the encoder")
    if encoder is None:
        first = replies[min(replies)]
        # Some embeddings of one encoder may be stored truncated: unit length is recorded only where all have it.
        normalised = all(reply.normalised for reply in replies.values())
        # Likewise the weights: embeddings of unknown origin may be of others.
        known = all(reply.weights for reply in replies.values())
        encoder = EncoderIdentity(first.encoder, first.dimension, normalised, weights if known else None)
    names = tuple(sorted(replies))
    every = sorted({model for reply in replies.values() for model in reply.models})
    return Handshake(
        Subset(federation, names),
        encoder,
        {model: tuple(name for name in names if model in replies[name].models) for model in every},
    )


def _another_name(name: str, reply: Hello) -> str | None:
    return None if reply.name == name else "gives another name than the one on the roster"


def _another_wire_format(name: str, reply: Hello) -> str | None:
    if reply.wire == WIRE_FORMAT:
        return None
    return (
        f"speaks wire format {reply.wire} (fedrouter {reply.version}), this coordinator {WIRE_FORMAT} "
        f"(fedrouter {own_version()})"
    )


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
