"""The record that every verb fills in: all that follows from letting a server ask a client one kind of question.

No field has a default, and "none" is always a value that gives its reason. So a verb cannot be added without saying how
it protects the rows, whether it adds up, what makes a reply invalid and how large a reply may be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any, Generic, TypeVar

from fedrouter.errors import BadInput, BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.federation.message import WITHHELD, Message, Packed, Request, Sums, withheld_by
from fedrouter.federation.privacy.policy import MinimumGroupSizes
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten

Asked = TypeVar("Asked", bound=Request[Any])
Answered = TypeVar("Answered", bound=Message)
Adding = TypeVar("Adding", bound=Sums)
MOST_BYTES = 2**26
"""Maximum number of bytes in a reply that is no sum and does not say otherwise."""

# --- Disclosure control ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MinimumSizes:
    """The answer applies these minimum group sizes; the client refuses to send one that did not.

    Parameters
    ----------
    sizes : fields of :class:`~fedrouter.federation.privacy.policy.MinimumGroupSizes` that the answer applies
    statement : what they guarantee for this reply
    eased_by_masks : whether less is required where secure aggregation masks the reply. Clients then see to it that no
        two totals give a single client's reply away (:mod:`~fedrouter.federation.privacy.cohorts`)
    """

    sizes: tuple[str, ...]
    statement: str
    eased_by_masks: bool = True


@dataclass(frozen=True)
class OwnNoise:
    """The answer adds the noise of the client's policy to everything that it sends; no group has a minimum size."""

    statement: str


@dataclass(frozen=True)
class NoRows:
    """The answer reads no rows, so there is nothing to control; the client denies it access to them."""

    reason: str


@dataclass(frozen=True)
class SumsUnderMasks(NoRows):
    """The answer reads no rows itself, but masks the reply to another verb; only such an answer may ask for one.

    Everything else would send that reply unmasked, past a policy that allows it under secure aggregation only.
    """


# --- Secure aggregation ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SecureSum(Generic[Asked, Answered]):
    """Replies add up, so secure aggregation can hide them in their total.

    Parameters
    ----------
    numbers : the maximum length of a vector, given the request
    flatten : a reply as a vector ``(m,)``, given the request and the number of clients in the sum
    unflatten : the total reply from the sum of that many clients' vectors
    exact : whether that total is the sum of the replies to the bit. Replies are then added as they come, also without
        masks; if not, they are kept until all are there
    """

    numbers: Callable[[Asked], int]
    flatten: Callable[[Asked, Answered, int], Vector]
    unflatten: Callable[[Asked, Vector, int], Answered]
    exact: bool


@dataclass(frozen=True)
class NotASum:
    """Replies do not add up: under secure aggregation, too, each client's reply is sent as it is."""

    reason: str


# --- Withheld replies -----------------------------------------------------------------------------------------------

NO_ROWS = "rows"
RULES = {
    "cell": "too few different queries",
    "say": "single queries would have too much say",
    "step": "too few queries would carry the training",
    NO_ROWS: "no evaluations",
}
"""Why there is nothing to send: a minimum group size, or another reason, in words."""


@dataclass(frozen=True)
class Withheld(Generic[Asked, Answered]):
    """A reply with nothing in it travels as its scalars and the rule that withholds the rest.

    Parameters
    ----------
    says_nothing : whether there is nothing in a reply
    nothing : a reply with nothing in it, from which the server gets the arrays
    """

    says_nothing: Callable[[Answered], bool]
    nothing: Callable[[Asked], Answered]


@dataclass(frozen=True)
class AlwaysSent:
    """Every reply travels as it is."""

    reason: str


# --- Comparison of clients ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShowsEmbeddings(Generic[Answered]):
    """The reply shows the ``width`` or ``length`` of the client's embeddings (None where it does not).

    Validation drops clients whose embeddings differ from those of the others.
    """

    width: Callable[[Answered], int | None]
    length: Callable[[Answered], float | None]


@dataclass(frozen=True)
class HidesEmbeddings:
    """The reply shows neither width nor length of embeddings."""

    reason: str


# --- The record -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Own:
    """What an answer is made of: a pure function of this and the request.

    Parameters
    ----------
    name : the member's name, from which its random numbers follow
    rows : its evaluations
    least : the fewest different queries that a centroid may stand for
    """

    name: str
    rows: Evaluations
    least: int = 1


def sum_of(reply: type[Adding], shapes: Callable[[Asked], Mapping[str, tuple[int, ...]]]) -> SecureSum[Asked, Adding]:
    """How replies add up whose every field is integers; ``shapes`` of these fields follow from the request."""

    def parts(request: Asked) -> list[tuple[int, ...]]:
        exact = reply.exact_fields()
        return [(*shape, 2) if name in exact else shape for name, shape in shapes(request).items()]

    def flat(request: Asked, answered: Adding, clients: int) -> Vector:
        return flatten(*(getattr(answered, name) for name in shapes(request)))

    def total(request: Asked, vector: Vector, clients: int) -> Adding:
        found = unflatten(vector, *parts(request))
        exact = reply.exact_fields()
        named = zip(shapes(request), found, strict=True)
        return reply(**{name: exact_sums(part) if name in exact else part for name, part in named})

    return SecureSum(lambda request: sum(map(prod, parts(request))), flat, total, exact=True)


@dataclass(frozen=True)
class Verb(Generic[Asked, Answered]):
    """One question that a server may ask a client, and everything that follows from it.

    Parameters
    ----------
    name : what a federation is asked with: ``federation.ask(name, request)``
    request, reply : the types of message; the reply's fields are all that can leave
    answer : the reply: from :class:`Own` and the request, where no ``disclosure`` is stated
    secure_sum : how replies flatten to vectors that secure aggregation can add
    faults : what is wrong with a reply to a request, as a short phrase without anything of the reply; or None
    purpose : one sentence: why the server asks; if empty, the request's own description
    leaves : one sentence: what leaves the client; if empty, the reply's own description
    disclosure : the minimum group sizes that the answer applies, or the noise in it; None if it is a function of the
        rows and the request alone
    withheld : how a reply with nothing in it travels, where it is not under masks
    most_bytes : the maximum number of bytes in a reply's arrays, or text if it has none, given the request; None if
        that follows from the numbers of a secure sum
    embeddings : what the reply shows of the client's embeddings
    """

    name: str
    request: type[Asked]
    reply: type[Answered]
    answer: Callable[[Any, Asked], Answered]
    secure_sum: SecureSum[Asked, Answered] | NotASum
    faults: Callable[[Asked, Answered], str | None]
    purpose: str = ""
    leaves: str = ""
    disclosure: MinimumSizes | OwnNoise | NoRows | None = None
    withheld: Withheld[Asked, Answered] | AlwaysSent = AlwaysSent("sent as it is")
    most_bytes: Callable[[Asked], int] | None = None
    embeddings: ShowsEmbeddings[Answered] | HidesEmbeddings = HidesEmbeddings("not shown by itself")

    def bytes_allowed(self, request: Asked) -> int:
        """The maximum number of bytes in a reply's arrays."""
        if self.most_bytes:
            return self.most_bytes(request)
        return 8 * self.secure_sum.numbers(request) if isinstance(self.secure_sum, SecureSum) else MOST_BYTES

    def as_sent(self, reply: Answered, rule: str) -> Answered:
        """The reply as it is sent: one with nothing in it without its arrays, with the rule that withholds them."""
        if isinstance(self.withheld, Withheld) and self.withheld.says_nothing(reply):
            return reply.withhold(rule)
        return reply

    def read(self, request: Asked, packed: Packed) -> Answered:
        """The reply to a request from its packed form; raises BadMessage if it is none."""
        rule = withheld_by(packed)
        if not rule:
            return self.reply.unpack(packed)
        if packed[0] or not isinstance(self.withheld, Withheld) or rule not in RULES:
            raise BadMessage(f"{self.reply.__name__}: withheld by no rule of this verb")
        scalars = {name: value for name, value in json.loads(packed[1]).items() if name != WITHHELD}
        found = self.reply.unpack((self.withheld.nothing(request).pack()[0], json.dumps(scalars)))
        if not self.withheld.says_nothing(found):
            raise BadMessage(f"{self.reply.__name__}: says something and is withheld")
        return found.withhold(rule)

    def __post_init__(self) -> None:
        for name, message in (("purpose", self.request), ("leaves", self.reply)):
            if not getattr(self, name):
                object.__setattr__(self, name, (message.__doc__ or "").partition("\n")[0])
        kinds: dict[str, tuple[type, ...]] = {
            "disclosure": (MinimumSizes, OwnNoise, NoRows),
            "secure_sum": (SecureSum, NotASum),
            "withheld": (Withheld, AlwaysSent),
            "embeddings": (ShowsEmbeddings, HidesEmbeddings),
        }
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise BadInput(f"verb: expected a name of letters, digits and underscores, got {self.name!r}")
        for name, kind in (("request", Request), ("reply", Message)):
            value = getattr(self, name)
            if not isinstance(value, type) or not issubclass(value, kind):
                raise BadInput(f"verb {self.name}, {name}: expected a subclass of {kind.__name__}, got {value!r}")
        for name, allowed in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, allowed) and not (name == "disclosure" and value is None):
                wanted = " or ".join(kind.__name__ for kind in allowed)
                raise BadInput(f"verb {self.name}, {name}: expected {wanted}, got {value!r}")
        if isinstance(self.disclosure, MinimumSizes):
            known = tuple(size.name for size in fields(MinimumGroupSizes))
            sizes: Any = self.disclosure.sizes
            if not isinstance(sizes, tuple) or not sizes or not set(sizes) <= set(known):
                raise BadInput(
                    f"verb {self.name}, sizes: expected a tuple of one or more of {', '.join(known)}, got {sizes!r}; a "
                    "verb without minimum group sizes reads no rows (NoRows)"
                )
        for owner in (self, *(getattr(self, name) for name in kinds if getattr(self, name) is not None)):
            for part in fields(owner):
                value = getattr(owner, part.name)
                if part.type == "str" and not (isinstance(value, str) and value.strip()):
                    raise BadInput(f"verb {self.name}, {part.name}: expected a sentence, got {value!r}")
                if part.type == "bool" and not isinstance(value, bool):
                    raise BadInput(f"verb {self.name}, {part.name}: expected True or False, got {value!r}")
                if str(part.type).startswith("Callable") and not callable(value) and part.name != "most_bytes":
                    raise BadInput(f"verb {self.name}, {part.name}: expected a function, got {value!r}")
