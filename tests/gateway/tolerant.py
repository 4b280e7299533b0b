"""An upstream that answers whatever it is sent, for requests that are not what any real one would read."""

import asyncio
import json
from collections import Counter
from typing import Any

import orjson

from gateway.upstreams import ControlledUpstream, chunks, completion, other_answer


class TolerantUpstream(ControlledUpstream):
    """Answers anything: whatever fails is then the gateway's doing. Keeps what it should never have been sent."""

    def __init__(self) -> None:
        self.wrong: list[bytes] = []
        super().__init__()

    async def _connection(self, reader, writer) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = head.partition("content-length: ")[2].partition("\r\n")[0]
                body = await reader.readexactly(int(length))
                path = head.split(" ")[1]
                streamed = self._checked(body).get("stream") is True and not path.endswith("/embeddings")
                if not path.endswith("/chat/completions"):
                    kind = "text/event-stream" if streamed else "application/json"
                    self._plain(writer, other_answer({"model": "instant", "path": path}, streamed), 200, kind=kind)
                elif not streamed:
                    self._plain(writer, completion("instant"), 200)
                else:
                    await self._stream({"model": "instant"}, writer, "instant", chunks("instant", False))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _checked(self, body: bytes) -> dict[str, Any]:
        """The body, which must be JSON for the model asked and hold nothing that was meant for the gateway."""
        try:
            found = orjson.loads(body)
            names = Counter(name for name, _ in json.loads(body, object_pairs_hook=list))
        except RecursionError:
            names = Counter(found)
        except ValueError:
            self.wrong.append(body)
            return {}
        if found.get("model") != "instant" or "fedrouter" in names:
            self.wrong.append(body)
        return found
