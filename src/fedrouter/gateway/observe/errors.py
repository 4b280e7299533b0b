"""What the log says of errors: where they were raised, or what is wrong with a config, in one line."""

from __future__ import annotations

import logging
import traceback

from fedrouter.errors import FedrouterError

LOG = logging.getLogger("fedrouter.gateway")


def described(error: Exception) -> str:
    """The type of an error and where it was raised, without its message, which may quote a prompt."""
    frames = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} in {' > '.join(frames)}"


def not_reloaded(error: Exception) -> None:
    """Log in one line why a config is not in use, with everything that is wrong in it."""
    why = "; ".join(line.strip() for line in str(error).splitlines()) if isinstance(error, FedrouterError) else None
    LOG.error("the config was not reloaded, the one before stays in use: %s", why or described(error))
