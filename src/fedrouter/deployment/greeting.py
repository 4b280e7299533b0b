"""The first question of a run: who is there, do all embed alike, and which models do they know?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedrouter.encoders import EncoderIdentity, column_stem
from fedrouter.errors import BadInput
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.verbs.messages import Hello, HelloRequest

Report = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Among:
    """A federation of which only some clients are asked."""

    federation: Federation
    names: tuple[str, ...]

    def clients(self) -> Sequence[str]:
        return self.names

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return self.federation.ask(verb, payload, self.names if to is None else to)


@dataclass(frozen=True)
class Greeting:
    """Those who agree on an encoder, which one, and the models that any of them can speak of, sorted."""

    federation: Among
    encoder: EncoderIdentity
    models: tuple[str, ...]


def greet(federation: Federation, report: Report, encoder: EncoderIdentity | None = None) -> Greeting:
    """Ask everyone; who calls itself by another name or embeds otherwise takes no part, with the reason reported.

    ``encoder`` is that of the bundle that grows; without one, that of most clients counts.
    """
    replies = dict(federation.ask("hello", HelloRequest()))
    for name in [name for name, reply in replies.items() if reply.name != name]:
        report(name, "hello", "calls itself by another name than the roster has")
        del replies[name]
    wanted = _key(encoder.name, encoder.dimension) if encoder else _most_common(replies)
    for name, reply in list(replies.items()):
        if _key(reply.encoder, reply.dimension) != wanted:
            report(name, "hello", f"embeds by another encoder than {wanted[0]} of width {wanted[1]}")
            del replies[name]
    if not replies:
        raise BadInput("nobody is left to learn from: no client that answered has the encoder's embeddings")
    if encoder is None:
        some = replies[min(replies)]
        # Of one encoder's embeddings some may be stored shortened; length one is claimed only where all have it.
        normalised = all(reply.normalised for reply in replies.values())
        encoder = EncoderIdentity(some.encoder, some.dimension, normalised)
    models = sorted({model for reply in replies.values() for model in reply.models})
    return Greeting(Among(federation, tuple(sorted(replies))), encoder, tuple(models))


def _key(encoder: str, dimension: int) -> tuple[str, int]:
    return column_stem(encoder), dimension


def _most_common(replies: Mapping[str, Hello]) -> tuple[str, int]:
    votes = Counter(_key(reply.encoder, reply.dimension) for reply in replies.values()).most_common(2)
    if not votes:
        raise BadInput("nobody is there to learn from: no client answered")
    if len(votes) > 1 and votes[0][1] == votes[1][1]:
        told = " and ".join(f"{name} of width {width}" for (name, width), _ in votes)
        raise BadInput(f"the clients do not agree on an encoder: as many embed by {told}; name the clients to ask")
    return votes[0][0]
