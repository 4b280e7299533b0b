"""The app that SuperNodes run: hands each message to the member's own process and returns its reply.

This file is shipped as it stands, so it needs nothing but Flower. It sees neither the log nor a key: whoever
replaces it by other code can ask the member's process no more than any message could.
"""

import socket
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

RECORD, CONTENT = "fedrouter", "content"
PATIENCE = 3600.0
"""Seconds for a reply: a member may read its log first."""

app = ClientApp()


@app.query()
def relay(message: Message, context: Context) -> Message:
    """Ask the process at the socket in the SuperNode's ``relay`` folder."""
    content = message.content[RECORD][CONTENT]
    if not isinstance(content, bytes):
        raise TypeError("expected bytes")
    answer = ask(Path(str(context.node_config["relay"])), content)
    return Message(RecordDict({RECORD: ConfigRecord({CONTENT: answer})}), reply_to=message)


def ask(folder: Path, content: bytes) -> bytes:
    """Send a token and a message over the Unix socket in a folder, and read the reply."""
    token = (folder / "token").read_bytes()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(folder / "socket"))
        connection.sendall(token + len(content).to_bytes(8, "big") + content)
        with connection.makefile("rb") as reply:
            size = int.from_bytes(reply.read(8), "big")
            answer = reply.read(size)
    if not size or len(answer) != size:
        raise ConnectionError("the member's process ended before it replied")
    return answer
