"""Exceptions for users; each message says what was wrong, where, and what to do."""


class FedrouterError(Exception):
    """Base class of errors that a user can fix; the command line prints the message without a traceback."""


class BadInput(FedrouterError):
    """An invalid file, row, field or setting."""


class MissingExtra(FedrouterError):
    """A feature whose optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the [{extra}] extra: pip install 'fedrouter[{extra}]'")


class BadBundle(FedrouterError):
    """A saved router that is truncated, edited, or incompatible with what it is used with."""


class BadMessage(FedrouterError):
    """A message between server and client that is invalid for its type."""


class Refused(FedrouterError):
    """A request that a client refuses because the reply would disclose private data."""
