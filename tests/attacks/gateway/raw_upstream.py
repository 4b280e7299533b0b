"""An upstream that sends exactly the bytes that it was given, for each request the next ones."""

import asyncio
import contextlib
import threading


def response(body: bytes, *headers: str, kind: str = "application/json", status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"content-type: {kind}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def stream(*pieces: bytes) -> bytes:
    return response(b"".join(pieces), kind="text/event-stream")


class RawUpstream:
    """``answers``: what is sent to each request, by the model that it names; ``late`` comes a moment after."""

    def __init__(self) -> None:
        self.answers: dict[bytes, bytes] = {}
        self.late: dict[bytes, bytes] = {}
        self.connections = 0
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connection, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _connection(self, reader, writer) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                model = next(name for name in self.answers if b'"%b"' % name in body)
                writer.write(self.answers[model])
                await writer.drain()
                if model in self.late:
                    await asyncio.sleep(0.1)
                    writer.write(self.late.pop(model))
        writer.close()
