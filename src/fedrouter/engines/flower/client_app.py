"""The client side of a run on Flower: answers the requests of a fixed list, each in a process of its own.

Only answers leave. If anything goes wrong, the server receives one word: the type of the error, or why it was refused.
The text of an error or a traceback could quote a prompt, so neither is sent or logged.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING

from fedrouter.engines.flower.engine import CATEGORY
from fedrouter.engines.flower.records import from_records, to_records
from fedrouter.errors import FedrouterError, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.verbs.registry import VERBS, verb_named

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

STATE_DIRECTORY = "home"
"""Key of the client's state directory in the configuration of its SuperNode."""


def make_client_app(open_client: Callable[[str], Client]) -> ClientApp:
    """Flower's object for a client, with a handler for every verb; ``open_client`` takes its state directory."""
    from flwr.clientapp import ClientApp

    def handle(message: Message, context: Context) -> Message:
        return reply_to(message, lambda: open_client(str(context.node_config[STATE_DIRECTORY])))

    app = ClientApp()
    for verb in VERBS:
        app.query(verb)(handle)
    return app


def reply_to(message: Message, client: Callable[[], Client]) -> Message:
    """The answer to a message, or one word that says why there is none."""
    from flwr.app import Error
    from flwr.app import Message as Reply
    from flwr.common.constant import ErrorCode

    try:
        verb = message.metadata.message_type.removeprefix(f"{CATEGORY}.")
        request = verb_named(verb).request.unpack(from_records(message.content))
        return Reply(to_records(client().answer(verb, request)), reply_to=message)
    except Exception as error:
        return Reply(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, error_type(error)), reply_to=message)


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
