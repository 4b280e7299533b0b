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
    "log": "its log cannot be read",
    "over": "the time of this epoch is over",
    "message": "the message is not one that this version reads",
    "policy": "its privacy settings forbid it",
    "secure_only": "it answers under secure sums only, unless its owner allows others with --no-secure-only",
    "secure_sum": "it does not take part in this secure sum",
    "question": "the question does not follow from the run",
    "signature": "it was shown a key that is not the one it knows",
    "training": "the settings or the weights of this training are not what it accepts",
    "questions": "it has answered as many questions of this kind as it answers in a day",
    "version": "it speaks another wire format than the coordinator",
}
"""Why a client refuses: the one word that leaves it, and what the coordinator shows for it. The details stay there."""


class Refused(FedrouterError):
    """A request that a client refuses; its text stays at the client, and ``reason``, a key of REFUSALS, is sent."""

    def __init__(self, text: str, reason: str = "policy") -> None:
        super().__init__(text)
        if reason not in REFUSALS:
            raise ValueError(f"reason: expected one of {', '.join(REFUSALS)}, got {reason!r}")
        self.reason = reason
