"""The client's side of an exchange: answers each question of a fixed list, or says in one word why not.

Only answers leave. If anything goes wrong, the server receives one word: the type of the error, or why it was refused.
The text of an error or a traceback could quote a prompt, so neither is sent or logged.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable

from fedrouter.engines.flower.encoding import Part, decode, encode
from fedrouter.errors import FedrouterError, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.verbs.registry import verb_named


def answer_exchange(content: bytes, client: Callable[[], Client], on_question: Callable[[str], None]) -> bytes:
    """The answers to the questions in ``content``, in their order; ``on_question`` is called with each verb."""
    return encode([_answer(part, client, on_question) for part in decode(content)])


def _answer(part: Part, client: Callable[[], Client], on_question: Callable[[str], None]) -> Part:
    try:
        verb = verb_named(part.verb)
        on_question(verb.name)
        request = verb.request.unpack(part.packed or ({}, ""))
        return Part(part.verb, client().answer(verb.name, request).pack())
    except Exception as error:
        return Part(part.verb, error=error_type(error))


def error_type(error: BaseException) -> str:
    """The one word that leaves: why a client refuses, or the name of the error's type.

    The type is ours, or the built-in one that it derives from; other names could hold data.
    """
    if isinstance(error, Refused):
        return error.reason
    for each in type(error).__mro__:
        ours = issubclass(each, FedrouterError) and each.__module__.startswith("fedrouter.")
        if ours or getattr(builtins, each.__name__, None) is each:
            return each.__name__
    return "Exception"
