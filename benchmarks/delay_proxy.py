"""A TCP proxy that delays and counts bytes: a long line on one machine."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class DelayProxy:
    """Forwards TCP connections to a port, each byte after a delay; counts bytes in both directions."""

    target: int
    delay: float = 0.0
    port: int = 0
    to_clients: int = 0
    from_clients: int = 0
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def start(self) -> None:
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True).start()
        ready.wait()

    async def _serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    async def _connect(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            server, on = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            back.close()
            return
        for name, source, sink in (("from_clients", client, on), ("to_clients", server, back)):
            task = asyncio.create_task(self._forward(name, source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, name: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass bytes on in order; what arrives while earlier bytes wait is delayed in parallel, as on a long line."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while True:
                due, content = await queue.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not content:
                    break
                sink.write(content)
                await sink.drain()

        sending = asyncio.create_task(send())
        try:
            while content := await source.read(2**16):
                setattr(self, name, getattr(self, name) + len(content))
                queue.put_nowait((time.monotonic() + self.delay, content))
            queue.put_nowait((time.monotonic() + self.delay, b""))
            await sending
        except OSError:
            sending.cancel()
        finally:
            sink.close()
