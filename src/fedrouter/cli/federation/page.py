"""`fedrouter federation page`: what a coordinator or a client did, in a browser on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrouter.cli.federation.status import DirectoryPath
from fedrouter.cli.output import Json, Voice, print_line
from fedrouter.errors import MissingExtra


def page(
    path: DirectoryPath,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 for any.")] = 0,
    as_json: Json = False,
) -> None:
    """Show a coordinator's members and rounds, or a client's audit, on 127.0.0.1 with a key that is printed once."""
    try:
        from fedrouter.gateway.page.federation.server import serve_page
    except ImportError:
        raise MissingExtra("The page", "serve") from None

    voice = Voice(as_json)

    def ready(url: str, key: str) -> None:
        voice.say(f"{url}   (Ctrl+C stops it)\nSign in with [bold]{key}[/]")
        if as_json:
            print_line({"url": url, "key": key})

    serve_page(path, port, ready)
