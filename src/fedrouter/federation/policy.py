"""The policy: what a member requires before anything leaves it, in a file that a person can read and edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from fedrouter.errors import BadInput, MissingExtra
from fedrouter.federation.identity import fingerprint
from fedrouter.federation.noise import COLLUDING, Noise, honest
from fedrouter.federation.terms import DAY, Terms
from fedrouter.files import PUBLIC, replace_file

COMMENTS: Final = {
    "coordinator": "public key of the coordinator, whose signature terms and totals must have",
    "trusted": "fingerprints of members whose noise this one counts on, besides its own (`federation approve`)",
    "least_members": "no epoch of fewer",
    "epsilon": "no epoch that protects less; 0 also allows epochs without noise",
    "delta": "the same",
    "colluders": "share of the members that may collude with the coordinator",
    "interval_days": "no epoch sooner after the one before",
    "families": "what may be learned; `kmeans` and `mlp` have no noise",
    "models": "whose rows take part; these names are public in the federation",
    "cap": "rows of a model that a total counts for at most in this member's own router",
    "window": "how many totals count",
}


@dataclass(frozen=True)
class Policy:
    """See ``COMMENTS``, which is what the file says beside each."""

    coordinator: str
    trusted: tuple[str, ...] = ()
    least_members: int = 3
    epsilon: float = 8.0
    delta: float = 1e-6
    colluders: float = COLLUDING
    interval_days: float = 7.0
    families: tuple[str, ...] = ("bayes",)
    models: tuple[str, ...] = ()
    cap: int = 500
    window: int = 12

    def __post_init__(self) -> None:
        Noise(self.epsilon, self.delta)
        for name, holds, expected in (
            ("coordinator", len(self.coordinator_key) == 32, "64 hexadecimal digits"),
            ("least_members", self.least_members >= 3, "at least 3"),
            ("colluders", 0 <= self.colluders < 1, "a share from 0 to below 1"),
            ("interval_days", self.interval_days >= 0, "at least 0 days"),
            ("cap", self.cap >= 0, "at least 0 rows"),
            ("window", self.window >= 1, "at least 1 total"),
        ):
            if not holds:
                raise BadInput(f"policy, {name}: expected {expected}, got {getattr(self, name)!r}")

    @property
    def coordinator_key(self) -> bytes:
        try:
            return bytes.fromhex(self.coordinator)
        except ValueError:
            return b""

    def trusts(self, key: bytes) -> bool:
        return fingerprint(key) in self.trusted

    def trusted_in(self, terms: Terms, own: str) -> tuple[str, ...]:
        """The other members in the terms whose noise counts."""
        return tuple(name for name, each in terms.members.items() if name != own and self.trusts(each.key))

    def divisor(self, terms: Terms, own: str) -> int:
        """The member's noise has the variance σ² divided by this."""
        return honest(len(terms.members), len(self.trusted_in(terms, own)) + 1, self.colluders)

    def refuses(self, terms: Terms) -> tuple[str, str] | None:
        """Why these terms do not fit this policy, as a word for the coordinator and a sentence for the owner."""
        least, weakest = self.least_members, self.epsilon
        if len(terms.members) < least:
            return "members", f"the epoch has {len(terms.members)} members; the policy asks for at least {least}"
        if terms.family not in self.families:
            return "family", f"the epoch learns {terms.family}; the policy allows {', '.join(self.families)}"
        if terms.family == "bayes" and weakest and not 0 < terms.epsilon <= weakest:
            asked = f"ε = {terms.epsilon:g}" if terms.epsilon else "no noise"
            return "noise", f"the epoch has {asked}; the policy asks for ε of at most {weakest:g}"
        if terms.delta > self.delta:
            return "noise", f"the epoch has δ = {terms.delta:g}; the policy asks for at most {self.delta:g}"
        return None

    @property
    def interval(self) -> float:
        """In seconds."""
        return self.interval_days * DAY

    def with_trust(self, fingerprints: tuple[str, ...]) -> Policy:
        return replace(self, trusted=tuple(dict.fromkeys((*self.trusted, *fingerprints))))

    def write(self, path: Path) -> None:
        yaml = _yaml()
        lines = []
        for part in fields(self):
            value = getattr(self, part.name)
            plain = {part.name: list(value) if isinstance(value, tuple) else value}
            lines.append(f"# {COMMENTS[part.name]}\n{yaml.safe_dump(plain, allow_unicode=True)}")
        replace_file(path, "".join(lines).encode(), PUBLIC)

    @classmethod
    def read(cls, path: Path) -> Policy:
        try:
            document = _yaml().safe_load(path.read_text())
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
        except (_yaml().YAMLError, UnicodeDecodeError):
            raise BadInput(f"{path}: expected YAML") from None
        try:
            return cls(**_fitting(document))
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None


def _fitting(document: Any) -> Mapping[str, Any]:
    """The file's values, each of the type that it should have."""
    if not isinstance(document, dict):
        raise BadInput("expected settings by name")
    found: dict[str, Any] = {}
    known = {part.name: part for part in fields(Policy)}
    for name, value in document.items():
        if name not in known:
            raise BadInput(f"{name!r} is no setting of a policy; expected {', '.join(known)}")
        usual = getattr(Policy, name, "")
        if isinstance(usual, tuple) and isinstance(value, list) and all(isinstance(each, str) for each in value):
            found[name] = tuple(value)
        elif isinstance(usual, float) and isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                found[name] = float(value)  # YAML 1.1 reads 1e-6 as text
            except ValueError:
                raise BadInput(f"{name}: expected a number, got {value!r}") from None
        elif type(value) is type(usual) and not isinstance(usual, tuple | float):
            found[name] = value
        else:
            kind = "a list of names" if isinstance(usual, tuple) else f"a value like {usual!r}"
            raise BadInput(f"{name}: expected {kind}, got {value!r}")
    if "coordinator" not in found:
        raise BadInput("coordinator: missing")
    return found


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("A member's policy", "secure") from None
    return yaml
