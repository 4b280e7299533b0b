"""Contract suite for verbs: what every verb's record must keep, those of other packages as well.

A verb is checked with rows and a request that asks something of them::

    def test_my_verb_keeps_the_contract():
        check_verb(VERB, sample_evaluations(), MyRequest(("small", "medium")))
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from fedrouter.evaluations import Evaluations
from fedrouter.federation.message import Message, Request, Sums
from fedrouter.federation.verb import Own, Verb
from fedrouter.testing.engines import content


def check_verb(verb: Verb[Any, Any], rows: Evaluations, request: Request[Any]) -> None:
    """Run every check of the suite."""
    check_record(verb)
    check_messages(verb, request, verb.answer(Own("one", rows), request))
    check_sums(verb, rows, request)


def check_record(verb: Verb[Any, Any]) -> None:
    """Every field of the messages is documented, and a request names the reply that answers it."""
    for kind in (verb.request, verb.reply):
        assert (kind.__doc__ or "").strip(), f"{kind.__name__}: has no docstring"
        for name, hint in get_type_hints(kind, include_extras=True).items():
            documented = get_origin(hint) is Annotated and str(get_args(hint)[1]).strip()
            assert documented, f"{kind.__name__}.{name}: expected Annotated[type, 'shape and meaning']"
    answered = [getattr(base, "__args__", ()) for base in getattr(verb.request, "__orig_bases__", ())]
    names = {getattr(arg, "__forward_arg__", getattr(arg, "__name__", "")) for args in answered for arg in args}
    assert verb.reply.__name__ in names, f"{verb.request.__name__}: expected Request[{verb.reply.__name__}]"


def check_messages(verb: Verb[Any, Any], request: Request[Any], reply: Message) -> None:
    """Request and reply survive packing, and an honest reply is valid."""
    for message, kind in ((request, verb.request), (reply, verb.reply)):
        assert type(message) is kind
        assert content(kind.unpack(message.pack())) == content(message), f"{kind.__name__}: changed by packing"
    assert verb.fault(request, reply) is None
    other = type("OtherReply", (Message,), {})()
    assert verb.fault(request, other) is not None, f"{verb.name}: accepts the reply to another verb"


def check_sums(verb: Verb[Any, Any], rows: Evaluations, request: Request[Any]) -> None:
    """Replies that add up add up to a valid reply of the same shapes, in any order."""
    if not (verb.masked or issubclass(verb.reply, Sums)):
        return
    halves = [rows.take(np.flatnonzero(rows.query % 2 == side)) for side in (0, 1)]
    first, second = (verb.answer(Own(f"client-{side}", own), request) for side, own in enumerate(halves))
    assert content(first + second) == content(second + first), f"{verb.name}: the order of replies changes their sum"
    assert verb.fault(request, first + second) is None
    if isinstance(first, Sums):
        shapes = [{part.name: getattr(each, part.name).shape for part in fields(each)} for each in (first, second)]
        assert shapes[0] == shapes[1], f"{verb.name}: shapes of sums depend on the rows"
