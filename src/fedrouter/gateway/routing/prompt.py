"""What is asked: the last human ask in a chat body, and what answering it takes.

A router should judge the question, not the scaffolding around it. The rules, in order (docs/gateway.md lists them):

1. Only messages of the role ``user`` are a human's; system text, assistant turns and tool results are not.
2. Of a message made of parts, the text parts count; images, audio, files and tool results do not.
3. If an agent marked the ask with one of :data:`ASK_TAGS`, what the last such tag encloses is the ask.
4. Otherwise blocks that agents add around it (:data:`BOILERPLATE_TAGS`) are removed. A tag counts if it opens a line: a
   question about markup stays whole.
5. Worked examples (`Q: … A: …` and the like, at least one answered) are removed; what stands before the first example
   stays, since it says what to do, and so does the last question, which has no answer.
6. The last message in which something is left is the ask; earlier ones are history.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

ASK_TAGS = ("user_query", "user_request", "user_message", "user_input", "user_question", "question", "task")
BOILERPLATE_TAGS = (
    "system-reminder",
    "system_reminder",
    "environment_details",
    "environment_context",
    "environment",
    "additional_data",
    "attached_files",
    "open_files",
    "file_contents",
    "context",
    "documents",
    "document",
    "instructions",
    "user_instructions",
    "rules",
    "memory",
    "tool_result",
    "function_results",
    "example",
    "examples",
)
LABELS = (
    ("Q", "A"),
    ("Question", "Answer"),
    ("Input", "Output"),
    ("User", "Assistant"),
    ("Human", "Assistant"),
    ("Human", "AI"),
    ("Problem", "Solution"),
)
LONGEST = 200_000
"""Characters of a message, from its end, that the rules look at."""
LONGEST_ASK = 20_000
"""Characters of the ask, from its end, that the encoder gets: far more than its window, but not a book."""
CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS = 800
MESSAGE_TOKENS = 4
BEGINNING = 20_000
"""Characters of a message that tell one conversation from another."""

_SALT = secrets.token_bytes(32)
_TAGS = "|".join((*ASK_TAGS, *BOILERPLATE_TAGS))
_TAG = re.compile(rf"(?:^[ \t]*<|</)(?P<name>{_TAGS})(?:\s[^<>]*)?>", re.IGNORECASE | re.MULTILINE)
_NUMBERED = r" ?\d{0,3} ?:"
_EXAMPLES = [tuple(re.compile(rf"^[ \t#*]*{label}{_NUMBERED}", re.MULTILINE) for label in pair) for pair in LABELS]
_LABELLED = re.compile(rf"^[ \t#*]*(?:{'|'.join(label for label, _ in LABELS)}){_NUMBERED}", re.MULTILINE)


@dataclass(frozen=True)
class Ask:
    """The human's text, and what the whole request takes: tokens (estimated) and abilities of a model."""

    text: str
    input_tokens: int
    most_output: int | None
    needs: frozenset[str]
    conversation: str
    """Stands for the conversation, by how it began."""
    continued: bool
    """Whether the conversation has had an answer before."""

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).digest()


def read_ask(body: Mapping[str, Any]) -> Ask:
    """The ask in a chat body whose ``messages`` are a list of objects."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    needs: set[str] = set()
    text, tokens, answered = "", 0, False
    for message in reversed(messages):
        content, role = message.get("content"), message.get("role")
        tokens += MESSAGE_TOKENS + _tokens(content, needs)
        answered = answered or role == "assistant"
        if calls := message.get("tool_calls"):
            tokens += length_of(calls) // CHARACTERS_PER_TOKEN
        if not text and role == "user":
            text = human_text(content)
    tools = body.get("tools") or body.get("functions")
    if tools:
        needs.add("tools")
        tokens += length_of(tools) // CHARACTERS_PER_TOKEN
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and wanted.get("type") in ("json_object", "json_schema"):
        needs.add("json")
    return Ask(text, tokens, _most_output(body), frozenset(needs), _beginning(messages), answered)


def human_text(content: Any) -> str:
    """What a human asks in the content of one message; empty where there is nothing of a human's."""
    text = _joined(content)[-LONGEST:]
    if "<" in text:
        text = _untagged(text)
    return strip_examples(text).strip()[-LONGEST_ASK:]


def _untagged(text: str) -> str:
    """What the last ask tag encloses, or else what stands outside the boilerplate; in one pass over the tags."""
    opened: dict[str, tuple[int, int]] = {}
    asked: str | None = None
    blocks: list[tuple[int, int]] = []
    for tag in _TAG.finditer(text):
        name = tag["name"].lower()
        if not tag[0].startswith("</"):
            opened.setdefault(name, tag.span())
        elif name in opened:
            start, inside = opened.pop(name)
            if name in ASK_TAGS:
                asked = text[inside : tag.start()]
            else:
                blocks.append((start, tag.end()))
    if asked is not None:
        return asked
    kept, end = [], 0
    for start, stop in sorted(blocks):
        kept.append(text[end:start])
        end = max(end, stop)
    return "".join([*kept, text[end:]])


def strip_examples(text: str) -> str:
    """A text without its worked examples.

    >>> strip_examples("Give the capital.\\nQ: France\\nA: Paris\\nQ: Peru\\nA:")
    'Give the capital.\\nPeru'
    """
    if ":" not in text or not _LABELLED.search(text):
        return text
    for asked, told in _EXAMPLES:
        questions, answers = list(asked.finditer(text)), list(told.finditer(text))
        if len(questions) < 2 or not answers or answers[0].start() < questions[0].end():
            continue
        last = questions[-1]
        end = next((answer.start() for answer in answers if answer.start() >= last.end()), len(text))
        preamble, question = text[: questions[0].start()].strip(), text[last.end() : end].strip()
        return f"{preamble}\n{question}" if preamble else question
    return text


def _joined(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (
        part.get("text") for part in content if isinstance(part, dict) and part.get("type") in ("text", "input_text")
    )
    return "\n".join(part for part in parts if isinstance(part, str))


def _tokens(content: Any, needs: set[str]) -> int:
    """Roughly how many tokens a content is; what it takes of a model is added to ``needs``."""
    if isinstance(content, str):
        return len(content) // CHARACTERS_PER_TOKEN
    count = 0
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image_url", "input_image", "image"):
            needs.add("vision")
            count += IMAGE_TOKENS
        elif kind == "input_audio":
            needs.add("audio")
        elif isinstance(part, dict) and isinstance(said := part.get("text"), str):
            count += len(said) // CHARACTERS_PER_TOKEN
    return count


def length_of(value: Any) -> int:
    """Characters of a JSON value, roughly."""
    try:
        return len(str(value))
    except RecursionError:  # JSON may be nested deeper than Python prints: then what it holds, without its brackets
        length, left = 0, [value]
        while left:
            inside = left.pop()
            if isinstance(inside, dict):
                left += [*inside, *inside.values()]
            elif isinstance(inside, list):
                left += inside
            else:
                length += len(str(inside))
        return length


def _most_output(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _beginning(messages: Sequence[Mapping[str, Any]]) -> str:
    """The messages up to the first of a user, hashed: every later turn of a conversation repeats them.

    Under a key of this process, because the log holds it and a plain hash of a short prompt could be guessed.
    """
    digest = hashlib.blake2b(key=_SALT, digest_size=12)
    for message in messages:
        start, role = _joined(message.get("content"))[:BEGINNING], message.get("role")
        digest.update(f"{role if isinstance(role, str) else None}\0{start}\0".encode(errors="surrogatepass"))
        if role == "user":
            break
    return digest.hexdigest()
