"""The errors fedrouter raises on purpose; each message says what was wrong, where, and what to do."""


class FedrouterError(Exception):
    """Anything a user can put right; the command line prints the message alone, without a traceback."""


class BadInput(FedrouterError):
    """A file, row, field or setting that was refused at the door."""


class MissingExtra(FedrouterError):
    """A feature whose optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the [{extra}] extra: pip install 'fedrouter[{extra}]'")


class BadBundle(FedrouterError):
    """A saved router that is truncated, edited, or does not fit what it is used with."""


class BadMessage(FedrouterError):
    """A payload between server and client that breaks the rules of its type."""


class Refused(FedrouterError):
    """Something a client will not do, because it would show what is its own."""
