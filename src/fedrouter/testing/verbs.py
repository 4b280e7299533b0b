"""Contract suite for verbs: what every verb's record must keep, those of other packages as well.

A verb is checked with rows and a request that asks something of them::

    def test_my_verb_keeps_the_contract():
        check_verb(VERB, sample_evaluations(), MyRequest(("small", "medium")))

Each check is a plain function with assertions, so a test may also call one alone.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from fedrouter.errors import Refused
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.message import Message, Request
from fedrouter.federation.middleware.validation import fault, most_bytes
from fedrouter.federation.privacy.policy import CLEAR, OPEN, PrivacyPolicy
from fedrouter.federation.verbs.verb import (
    MinimumSizes,
    NoRows,
    OwnNoise,
    SecureSum,
    ShowsEmbeddings,
    Verb,
)
from fedrouter.testing.engines import content

MOST_BYTES = 2**40
"""No honest reply has more bytes than this, whatever is asked."""


def check_verb(verb: Verb[Any, Any], rows: Evaluations, request: Request[Any]) -> None:
    """Run every check of the suite on a verb that a client can answer from its rows alone."""
    check_record(verb)
    reply = Client("one", rows, OPEN).answer(verb.name, request)
    check_messages(verb, request, reply)
    check_minimum_sizes(verb, rows, request)
    check_secure_only(verb, rows, request)
    check_secure_sum(verb, rows, request)


def check_record(verb: Verb[Any, Any]) -> None:
    """Every field says something, and every field of the messages is documented."""
    for part in fields(verb):
        optional = part.name in ("disclosure", "most_bytes")
        assert optional or getattr(verb, part.name) is not None, f"{verb.name}: {part.name} is missing"
    for sentence in (verb.purpose, verb.leaves):
        complete = sentence[0].isupper() and sentence.endswith(".")
        assert complete, f"{verb.name}: expected a sentence, got {sentence!r}"
    assert not verb.most_bytes or (verb.most_bytes.__doc__ or "").strip(), (
        f"{verb.name}: most_bytes has no docstring, which the docs print"
    )
    for kind in (verb.request, verb.reply):
        assert (kind.__doc__ or "").strip(), f"{kind.__name__}: has no docstring"
        for name, hint in get_type_hints(kind, include_extras=True).items():
            documented = get_origin(hint) is Annotated and str(get_args(hint)[1]).strip()
            assert documented, f"{kind.__name__}.{name}: expected Annotated[type, 'shape and meaning']"
    answered = [getattr(base, "__args__", ()) for base in getattr(verb.request, "__orig_bases__", ())]
    names = {getattr(arg, "__forward_arg__", getattr(arg, "__name__", "")) for args in answered for arg in args}
    assert verb.reply.__name__ in names, f"{verb.request.__name__}: expected Request[{verb.reply.__name__}]"


def check_messages(verb: Verb[Any, Any], request: Request[Any], reply: Message) -> None:
    """Request and reply survive packing; an honest reply is valid and no larger than its request allows."""
    for message, kind in ((request, verb.request), (reply, verb.reply)):
        assert type(message) is kind
        same = kind.unpack(message.pack()) if kind is verb.request else verb.read(request, message.pack())
        assert content(same) == content(message), f"{kind.__name__}: changed by packing"
    most = most_bytes(verb.name, request)
    assert reply.size <= most < MOST_BYTES, f"{verb.name}: a reply of {reply.size} bytes, {most} are allowed"
    assert fault(verb.name, request, reply) is None
    other = type("OtherReply", (Message,), {})()
    assert fault(verb.name, request, other) is not None, f"{verb.name}: accepts the reply to another verb"
    if isinstance(verb.embeddings, ShowsEmbeddings):
        assert isinstance(verb.embeddings.width(reply), int | None)
        assert isinstance(verb.embeddings.length(reply), float | None)


def check_minimum_sizes(verb: Verb[Any, Any], rows: Evaluations, request: Request[Any]) -> None:
    """With minimum group sizes, a log of one query is answered like an empty one."""
    if verb.disclosure is None or isinstance(verb.disclosure, NoRows):
        return
    if isinstance(verb.disclosure, OwnNoise):
        noisy, again = (Client("one", rows, CLEAR).answer(verb.name, request) for _ in range(2))
        assert content(noisy) != content(again), f"{verb.name}: two answers are equal, so there is no noise in them"
        return
    assert isinstance(verb.disclosure, MinimumSizes)
    assert verb.disclosure.sizes, f"{verb.name}: states no minimum group size"
    assert set(verb.disclosure.sizes) <= {"cluster", "cell", "say", "step"}
    single = rows.take(np.flatnonzero(rows.query == rows.query[0]))
    one, none = (Client("one", own, CLEAR) for own in (single, rows.take(np.zeros(0, np.int64))))
    assert content(one.answer(verb.name, request)) == content(none.answer(verb.name, request)), (
        f"{verb.name}: a single query shows in the reply"
    )
    Client("one", rows, CLEAR).answer(verb.name, request)  # refused if a stated size was not applied


def check_secure_only(verb: Verb[Any, Any], rows: Evaluations, request: Request[Any]) -> None:
    """A client that sends sums under masks only refuses a sum without, and answers what is no sum."""
    client = Client("one", rows, PrivacyPolicy(minimum_sizes=None, secure_only=True))
    try:
        client.answer(verb.name, request)
    except Refused:
        assert isinstance(verb.secure_sum, SecureSum), f"{verb.name}: refused, but it is not a sum"
    else:
        assert not isinstance(verb.secure_sum, SecureSum), f"{verb.name}: a sum was sent without masks"


def check_secure_sum(verb: Verb[Any, Any], rows: Evaluations, request: Request[Any]) -> None:
    """Vectors of all clients have one length, and their sum is the sum of the replies, in any order."""
    how = verb.secure_sum
    if not isinstance(how, SecureSum):
        return
    halves = [rows.take(np.flatnonzero(rows.query % 2 == side)) for side in (0, 1)]
    first, second = (Client(f"client-{side}", own, OPEN).answer(verb.name, request) for side, own in enumerate(halves))
    vectors = [how.flatten(request, reply, 2) for reply in (first, second)]
    assert all(vector.dtype == np.uint64 and vector.ndim == 1 for vector in vectors)
    assert len(vectors[0]) == len(vectors[1]) <= how.numbers(request)
    total = how.unflatten(request, vectors[0] + vectors[1], 2)
    assert type(total) is verb.reply
    assert fault(verb.name, request, total) is None
    if hasattr(first, "__add__"):
        assert content(total) == content(first + second), f"{verb.name}: the secure total is not the sum"
        assert content(how.unflatten(request, vectors[0], 1)) == content(first)
