"""Answers that an upstream compresses although it was asked not to: unpacked as they arrive."""

from __future__ import annotations

import zlib
from typing import Protocol

from fedrouter.gateway.upstream.http_client import Response
from fedrouter.gateway.upstream.http_connection import Broken

PIECE = 1 << 16
"""Most bytes that are unpacked at once, however well they were compressed."""
PACKED = frozenset({b"gzip", b"x-gzip", b"deflate"})
PLAIN = frozenset({b"", b"identity"})


class Content(Protocol):
    """The body of a response, read in pieces as they come."""

    async def readany(self) -> bytes:
        """What has come; waits if that is nothing, and is empty at the end."""
        ...

    def at_eof(self) -> bool: ...


class UnknownEncoding(ValueError):
    """The body is compressed in a way that cannot be unpacked."""


def content_of(response: Response) -> Content:
    """The body of a response as the upstream meant it; :class:`UnknownEncoding` if that cannot be known."""
    encoding = response.header(b"content-encoding").strip().lower()
    if encoding in PLAIN:
        return response
    if encoding not in PACKED:
        raise UnknownEncoding
    return Unpacked(response)


class Unpacked:
    """A gzip or deflate body; one that is broken or ends too early is :class:`Broken`, as any other."""

    def __init__(self, packed: Content) -> None:
        self._packed = packed
        self._inflate = _inflate()
        self._waits = False

    async def readany(self) -> bytes:
        while True:
            found = self._next(b"") if self._waits else b""
            if found:
                return found
            piece = await self._packed.readany()
            if not piece:
                if not self._inflate.eof:
                    raise Broken("the compressed body is not complete")
                return b""
            if found := self._next(piece):
                return found

    def at_eof(self) -> bool:
        return not self._waits and self._packed.at_eof()

    def _next(self, piece: bytes) -> bytes:
        """At most :data:`PIECE` bytes of what a piece holds; ``_waits`` says whether there may be more."""
        packed = self._inflate.unconsumed_tail + piece
        if self._inflate.eof:  # a gzip body may have several parts
            packed = self._inflate.unused_data + piece
            self._inflate = _inflate()
        try:
            found = self._inflate.decompress(packed, PIECE)
        except zlib.error:
            raise Broken("the body is not compressed as it says") from None
        self._waits = len(found) == PIECE or bool(self._inflate.unused_data)
        return found


def _inflate() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip or zlib, whichever it is
