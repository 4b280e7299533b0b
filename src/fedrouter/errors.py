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


REFUSALS = {
    "terms": "the terms, or what is asked under them, are not what it accepts",
    "rollback": "its journal or the terms were restored from a backup: what was sent before is not in them",
    "interval": "it took part too short a time ago for its policy",
    "members": "the epoch has fewer members than its policy asks for",
    "noise": "the epoch has less noise than its policy asks for",
    "family": "its policy does not allow this family of routers",
    "encoder": "its log has embeddings of another encoder",
    "policy": "its policy cannot be read",
    "log": "its log cannot be read",
    "over": "the time of this epoch is over",
    "message": "the message is not one that this version reads",
}
"""Why a member refuses: the one word that leaves it, and what the coordinator shows for it. The details stay there.

With ``interval`` goes the time from which the member takes part again.
"""


class Refused(FedrouterError):
    """A message that a member refuses; its text stays at the member, ``reason``, a key of REFUSALS, is sent.

    So is ``until``, seconds since 1970, if it will be answered later.
    """

    def __init__(self, text: str, reason: str, until: int | None = None) -> None:
        super().__init__(text)
        if reason not in REFUSALS:
            raise ValueError(f"reason: expected one of {', '.join(REFUSALS)}, got {reason!r}")
        self.reason, self.until = reason, until
