"""The client's side of a run on Flower: every question of a fixed list, answered in a process of its own.

Nothing but answers leaves: whatever goes wrong in here is told to the server by one word, the kind of the error. Its
text could quote a prompt, and so could a traceback in a log; they go nowhere.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedrouter.deployment.participant import client_of
from fedrouter.engines.flower.engine import CATEGORY
from fedrouter.engines.flower.records import from_records, to_records
from fedrouter.errors import FedrouterError
from fedrouter.federation.client import Client
from fedrouter.federation.verbs.messages import VERBS

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp


def make_app() -> ClientApp:
    """Flower's object for a client, with one handler for every verb."""
    from flwr.clientapp import ClientApp

    app = ClientApp()
    for verb in VERBS:
        app.query(verb)(handle)
    return app


def handle(message: Message, context: Context) -> Message:
    """Answer a message as the client whose home the SuperNode was started with."""
    return reply_to(message, lambda: client_of(Path(str(context.node_config["home"]))))


def reply_to(message: Message, client: Callable[[], Client]) -> Message:
    """The answer to a message, or one word that says why there is none."""
    from flwr.app import Error
    from flwr.app import Message as Reply
    from flwr.common.constant import ErrorCode

    try:
        verb = message.metadata.message_type.removeprefix(f"{CATEGORY}.")
        request = VERBS[verb][0].unpack(from_records(message.content))
        return Reply(to_records(client().answer(verb, request)), reply_to=message)
    except Exception as error:
        return Reply(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, kind(error)), reply_to=message)


def kind(error: BaseException) -> str:
    """The name of an error's kind: one of ours, or Python's own that it is a case of; a name of others' may be data."""
    for each in type(error).__mro__:
        ours = issubclass(each, FedrouterError) and each.__module__.startswith("fedrouter.")
        if ours or getattr(builtins, each.__name__, None) is each:
            return each.__name__
    return "Exception"
