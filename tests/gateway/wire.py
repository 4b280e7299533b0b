"""A client below HTTP libraries: sends any bytes, and hears whatever comes back or that nothing does."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson


@dataclass
class Reply:
    """What a server answered; ``status`` 0 if it closed the connection without a word."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = True

    def error(self) -> dict[str, str | None]:
        """The error in OpenAI's shape; fails if there is none."""
        found = orjson.loads(self.body)["error"]
        assert set(found) == {"message", "type", "param", "code"}
        assert isinstance(found["message"], str)
        return found


async def send(url: str, raw: bytes, hang_up: bool = False, bodiless: bool = False, seconds: float = 30) -> Reply:
    """The reply to these bytes; ``TimeoutError`` if neither it nor the connection's end comes.

    With ``hang_up`` the client closes its side when it has sent everything, as one that has gone away.
    """
    async with asyncio.timeout(seconds):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 24)
        try:
            writer.write(raw)
            if hang_up:
                writer.write_eof()
            reading = asyncio.ensure_future(_read(reader, bodiless))
            with contextlib.suppress(ConnectionError):  # refused early: what was said about it can still be read
                await writer.drain()
            return await reading
        finally:
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader, bodiless: bool) -> Reply:
    reply = Reply()
    try:
        while reply.status < 200:  # past "100 Continue"
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            reply.status = int(lines[0].split(" ")[1])
            pairs = (line.partition(":") for line in lines[1:] if line)
            reply.headers = {name.lower(): value.strip() for name, _, value in pairs}
        if bodiless:
            return reply
        if "content-length" in reply.headers:
            reply.body = await reader.readexactly(int(reply.headers["content-length"]))
        elif reply.headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                reply.body += (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        else:
            reply.body = await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        reply.complete = reply.status == 0
    return reply
