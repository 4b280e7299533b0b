"""Write docs/messages.md, the complete list of what may leave a client, from the verbs' records.

Run with `.venv/bin/python scripts/make_messages_doc.py`; a test checks that the page is up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fedrouter.federation.message import Message
from fedrouter.federation.middleware.validation import SCALAR_BYTES
from fedrouter.federation.verbs.registry import GROUP, VERBS
from fedrouter.federation.verbs.verb import (
    MinimumSizes,
    OwnNoise,
    SecureSum,
    ShowsEmbeddings,
    Verb,
    Withheld,
)

TARGET = Path(__file__).parents[1] / "docs" / "messages.md"
INTRODUCTION = f"""# What may leave a client

<!-- Written by scripts/make_messages_doc.py from the verbs' records: change those, then run it. -->

This is the complete list of messages that a client can send, for the person who must approve that it takes part. A
client answers the verbs below and nothing else: an unknown verb is refused, and so is a reply with any field that is
not listed. No field holds the text of a query, an embedding of one query, or a single evaluation. Each entry names the
file that holds everything said here about it. A package that is installed beside
fedrouter can add verbs through the entry-point group `{GROUP}`; `fedrouter audit` shows what was sent, whatever the
verb.

How to read an entry:

- **Minimum group sizes** are on by default (5 different queries). They protect against a
  coordinator that follows the protocol. [Security](security.md) says what they do not protect against.
- **Noise** is in a `release` instead, by default of ε = 8 and δ = 1e-6. Other verbs have none.
- **Secure sums** hide a client's reply in the total of at least three clients. By default a client refuses to send such
  a reply in any other way.
- **Withheld** is what a reply with nothing in it travels as: some 50 bytes, among them the rule by which that is so
  (`cell`, `say`, `step`; `rows` from a client without minimum group sizes). It does not tell few rows from none. Under
  secure sums, zeros travel under masks, so that nobody sees that a client sends nothing.
- **Largest reply** is the most that a server accepts, in bytes of arrays, besides up to {SCALAR_BYTES:,} bytes of
  scalars. K is the number of centres, M of models, d the width of embeddings, n the number of clients.
- A shape such as `(M,)` stands before each array. An *exact sum* is a sum of numbers in fixed point, two 64-bit
  integers each; it holds the sum and nothing of its terms.
"""


def page() -> str:
    """The whole page."""
    verbs = list(VERBS.values())
    return "\n".join([INTRODUCTION, *overview(verbs), *(line for verb in verbs for line in entry(verb))])


def overview(verbs: Iterable[Verb[Any, Any]]) -> list[str]:
    """One table row for each verb."""
    lines = ["## Overview", "", "| verb | what leaves | minimum group sizes | secure sum |", "|---|---|---|---|"]
    for verb in verbs:
        rule = verb.disclosure
        if isinstance(rule, MinimumSizes):
            sizes = ", ".join(f"`{size}`" for size in rule.sizes)
        else:
            sizes = "noise instead" if isinstance(rule, OwnNoise) else "reads no rows" if rule else "none"
            sizes = "5 queries a centroid" if verb.name == "cluster" else sizes
        secure = "yes" if isinstance(verb.secure_sum, SecureSum) else "no"
        lines.append(f"| [`{verb.name}`](#{verb.name}) | {verb.leaves} | {sizes} | {secure} |")
    return [*lines, ""]


def entry(verb: Verb[Any, Any]) -> list[str]:
    """The section of one verb."""
    return [
        f"## {verb.name}",
        "",
        verb.purpose,
        "",
        f"**What leaves.** {verb.leaves}",
        "",
        *table("Reply", verb.reply),
        *table("Request", verb.request),
        f"- **Minimum group sizes**: {disclosure(verb)}",
        f"- **Secure sums**: {secure_sum(verb)}",
        f"- **Withheld**: {withheld(verb)}",
        f"- **Largest reply**: {largest(verb)}",
        f"- **Compared between clients**: {embeddings(verb)}",
        f"- **File**: `{verb.answer.__module__.removeprefix('fedrouter.').replace('.', '/')}.py`",
        "",
    ]


def table(kind: str, message: type[Message]) -> list[str]:
    """The fields of a request or a reply."""
    lines = [f"| {kind} `{message.__name__}` | type | meaning |", "|---|---|---|"]
    for name, hint in get_type_hints(message, include_extras=True).items():
        meaning = get_args(hint)[1] if get_origin(hint) is Annotated else ""
        lines.append(f"| `{name}` | {typed(get_args(hint)[0])} | {meaning} |")
    return [*lines, ""]


def typed(kind: Any) -> str:
    """A field's type in words."""
    plain = {
        str: "text",
        int: "integer",
        float: "number",
        bool: "true or false",
        tuple[str, ...]: "names",
        tuple[int, ...]: "integers",
    }
    if kind in plain:
        return plain[kind]
    if getattr(kind, "__name__", "") == "ExactSums":
        return "exact sums"
    if getattr(kind, "__name__", "") == "CostScale" or "dict" in str(kind).lower() or "Mapping" in str(kind):
        return "named arrays"
    return "array"


def disclosure(verb: Verb[Any, Any]) -> str:
    rule = verb.disclosure
    if isinstance(rule, MinimumSizes):
        return f"{' and '.join(f'`{size}`' for size in rule.sizes)}: {rule.statement}."
    if isinstance(rule, OwnNoise):
        return f"none; noise instead: {rule.statement}."
    if rule is None:
        return "at least 5 different queries behind each centroid." if verb.name == "cluster" else "none."
    return f"none apply, because it reads no rows: {rule.reason}."


def secure_sum(verb: Verb[Any, Any]) -> str:
    if isinstance(verb.secure_sum, SecureSum):
        return "yes; only the total of all clients is visible."
    return f"no: {verb.secure_sum.reason}."


def withheld(verb: Verb[Any, Any]) -> str:
    if isinstance(verb.withheld, Withheld):
        return "its scalars, and which rule leaves nothing to send."
    return f"never: {verb.withheld.reason}."


def largest(verb: Verb[Any, Any]) -> str:
    if verb.most_bytes is None:
        return "8 bytes for each number." if isinstance(verb.secure_sum, SecureSum) else "64 MiB."
    return (verb.most_bytes.__doc__ or "").strip()


def embeddings(verb: Verb[Any, Any]) -> str:
    if isinstance(verb.embeddings, ShowsEmbeddings):
        return "the width or length of embeddings; a client that differs from the others is dropped."
    return f"nothing: {verb.embeddings.reason}."


def main() -> None:
    TARGET.write_text(page())


if __name__ == "__main__":
    main()
