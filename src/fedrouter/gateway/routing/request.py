"""What a request says to the router: its prompt, what it requires of a model, and its options.

A router should judge the question, not the scaffolding around it. The rules, in order (docs/gateway.md lists them):

1. Only messages with the role ``user`` count; system text, assistant messages and tool results do not.
2. In a message made of parts, the text parts count; images, audio, files and tool results do not.
3. If an agent marked the prompt with one of :data:`PROMPT_TAGS`, the content of the last such tag is the prompt.
4. Otherwise blocks that agents add (:data:`BOILERPLATE_TAGS`) are removed. A tag counts only at the start of a line, so
   that a question about markup stays whole.
5. Few-shot examples (`Q: … A: …` and similar, at least one of them answered) are removed. The text before the first
   example stays, since it is the instruction, and so does the last question, which has no answer.
6. The last message that has any text left is the prompt; earlier ones are history.

Options stand under ``fedrouter`` in the body, in ``x-fedrouter-*`` headers, or in the model's name.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError
from pydantic_core import PydanticCustomError

from fedrouter.gateway.http import HttpError

PROMPT_TAGS = ("user_query", "user_request", "user_message", "user_input", "user_question", "question", "task")
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
MAX_MESSAGE = 200_000
"""Characters of a message, counted from its end, that the rules look at."""
MAX_PROMPT = 20_000
"""Characters of the prompt, counted from its end, that the encoder gets; far more than its context window."""
CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS = 800
FILE_CHARACTERS_PER_TOKEN = 50
"""Base64 characters of a file for each token that models read of it; a page of a PDF has some 75,000."""
AUDIO_CHARACTERS_PER_TOKEN = 2_000
"""The same for compressed audio."""
MESSAGE_TOKENS = 4
MAX_DIGITS, MAX_WHOLE = 32, 1e15
"""Characters of a number that is sent as text, and the size up to which one with a fraction is read."""
CONVERSATION_START = 20_000
"""Characters of a message that identify its conversation."""

_TAGS = "|".join((*PROMPT_TAGS, *BOILERPLATE_TAGS))
_TAG = re.compile(rf"(?:^[ \t]*<|</)(?P<name>{_TAGS})(?:\s[^<>]*)?>", re.IGNORECASE | re.MULTILINE)
_NUMBERED = r" ?\d{0,3} ?:"
_EXAMPLES = [tuple(re.compile(rf"^[ \t#*]*{label}{_NUMBERED}", re.MULTILINE) for label in pair) for pair in LABELS]
_LABELLED = re.compile(rf"^[ \t#*]*(?:{'|'.join(label for label, _ in LABELS)}){_NUMBERED}", re.MULTILINE)


@dataclass(frozen=True)
class Prompt:
    """The user's text, and what the whole request requires: estimated tokens, and abilities of a model."""

    text: str
    input_tokens: int
    max_output: int | None
    needs: frozenset[str]
    conversation: bytes
    """Identifies the conversation: a hash of its first messages. It is logged only as a keyed hash."""
    continued: bool
    """Whether the conversation already has an assistant message."""
    choices: int = 1
    """How many answers the request asks for (``n``)."""

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the text, the key of the caches."""
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).digest()


def read_prompt(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a chat body, whose ``messages`` must be a list of objects."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    needs: set[str] = set()
    text, tokens, answered = "", 0, False
    for message in reversed(messages):
        content, role = message.get("content"), message.get("role")
        # In the Responses API, calls of tools and their results are items of their own.
        tokens += MESSAGE_TOKENS + _tokens(message.get("output") if content is None else content, needs)
        answered = answered or role == "assistant"
        if calls := message.get("tool_calls") or message.get("arguments"):
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
    choices = whole_number(body.get("n")) or 1
    return Prompt(text, tokens, _max_output(body), frozenset(needs), _conversation(messages), answered, choices)


def human_text(content: Any) -> str:
    """The text a person wrote in the content of one message; empty if there is none."""
    text = _joined(content)[-MAX_MESSAGE:]
    if "<" in text:
        text = _untagged(text)
    return strip_examples(text).strip()[-MAX_PROMPT:]


def _untagged(text: str) -> str:
    """The content of the last prompt tag, or else the text outside boilerplate tags; one pass over the tags."""
    opened: dict[str, tuple[int, int]] = {}
    tagged: str | None = None
    blocks: list[tuple[int, int]] = []
    for tag in _TAG.finditer(text):
        name = tag["name"].lower()
        if not tag[0].startswith("</"):
            opened.setdefault(name, tag.span())
        elif name in opened:
            start, inside = opened.pop(name)
            if name in PROMPT_TAGS:
                tagged = text[inside : tag.start()]
            else:
                blocks.append((start, tag.end()))
    if tagged is not None:
        return tagged
    kept, end = [], 0
    for start, stop in sorted(blocks):
        kept.append(text[end:start])
        end = max(end, stop)
    return "".join([*kept, text[end:]])


def strip_examples(text: str) -> str:
    """Remove few-shot examples from a text.

    >>> strip_examples("Give the capital.\\nQ: France\\nA: Paris\\nQ: Peru\\nA:")
    'Give the capital.\\nPeru'
    """
    if ":" not in text or not _LABELLED.search(text):
        return text
    for question_label, answer_label in _EXAMPLES:
        questions, answers = list(question_label.finditer(text)), list(answer_label.finditer(text))
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
    """Estimated tokens of a message content; abilities it requires of a model are added to ``needs``."""
    if isinstance(content, str):
        return len(content) // CHARACTERS_PER_TOKEN
    count, parts = 0, content if isinstance(content, list) else []
    results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
    for part in [*parts, *(inside for result in results for inside in _parts(result.get("content")))]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image_url", "input_image", "image"):
            needs.add("vision")
            count += IMAGE_TOKENS
        elif kind == "input_audio":
            needs.add("audio")
            count += 1 + length_of(part.get("input_audio")) // AUDIO_CHARACTERS_PER_TOKEN
        elif kind in ("file", "input_file", "document"):
            needs.add("files")
            count += 1 + length_of(part) // FILE_CHARACTERS_PER_TOKEN
        elif kind == "tool_use":
            count += length_of(part.get("input")) // CHARACTERS_PER_TOKEN
        elif isinstance(part, dict) and isinstance(text := part.get("text") or part.get("thinking"), str):
            count += len(text) // CHARACTERS_PER_TOKEN
    return count


def _parts(content: Any) -> list[Any]:
    """The content of a tool's result as parts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def length_of(value: Any) -> int:
    """Approximate number of characters of a JSON value."""
    try:
        return len(str(value))
    except RecursionError:  # nested deeper than Python can print: count the leaves, without brackets
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


def _max_output(body: Mapping[str, Any]) -> int | None:
    """The limit of output tokens; of two, the larger one, because an upstream may read only that."""
    limits = [whole_number(body.get(name)) for name in ("max_completion_tokens", "max_tokens")]
    return max((limit for limit in limits if limit is not None), default=None)


def whole_number(value: Any) -> int | None:
    """A whole number above 0, also one that lenient upstreams read as such: ``1e3``, ``"1000"``."""
    if isinstance(value, str) and len(value) <= MAX_DIGITS:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, float) and 0 < value < math.inf:
        value = math.ceil(min(value, MAX_WHOLE))
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _conversation(messages: Sequence[Mapping[str, Any]]) -> bytes:
    """Hash of the messages up to the first user message, which every later request of a conversation repeats."""
    digest = hashlib.blake2b(digest_size=32)
    for message in messages:
        start, role = _joined(message.get("content"))[:CONVERSATION_START], message.get("role")
        digest.update(f"{role if isinstance(role, str) else None}\0{start}\0".encode(errors="surrogatepass"))
        if role == "user":
            break
    return digest.digest()


MAX_NAME = 200
"""Characters of a name."""
MAX_GLOBS = 100
MAX_NUMBER = 1e12
"""The largest λ or price; beyond it ``accuracy - λ · cost`` loses its precision."""
HEADER = b"x-fedrouter-"


def _printable(value: str) -> str:
    if not value.isprintable():
        raise PydanticCustomError("text", "not printable")
    return value


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value)


Number = Annotated[float, Field(strict=True, ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
Name = Annotated[StrictStr, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]
Glob = Annotated[StrictStr, Field(min_length=1, max_length=MAX_NAME)]
Globs = Annotated[Glob | Annotated[list[Glob], Field(min_length=1, max_length=MAX_GLOBS)], AfterValidator(_as_tuple)]


class RequestOptions(BaseModel):
    """Options of one request. The source of their validation, of the OpenAPI schema and of the table in the docs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tradeoff: Number | None = Field(default=None, description="λ, in accuracy per US dollar, instead of the config's.")
    dial: Annotated[Number, Field(le=10)] | None = Field(
        default=None, description="From 0 (cheapest) to 10 (best), instead of a tradeoff."
    )
    quality: Annotated[Number, Field(le=1)] | None = Field(
        default=None,
        description="Share of the best model's expected accuracy to keep on average, as cheaply as possible; "
        "instead of a tradeoff.",
    )
    latency: Number | None = Field(
        default=None, description="Accuracy that a second of waiting is worth, instead of the config's."
    )
    max_cost: Number | None = Field(
        default=None, description="US dollars; excludes models whose expected cost for this request is higher."
    )
    allow: Globs | None = Field(
        default=None, description="Names of the models that may answer; `*` and `?` are wildcards."
    )
    max_price: Number | None = Field(
        default=None, description="US dollars per million tokens; excludes models with a higher input or output price."
    )
    session: Name | None = Field(
        default=None, description="Name of the conversation; by default it is recognized by its first messages."
    )
    session_budget: Number | None = Field(
        default=None, description="US dollars that the requests of this conversation may cost together."
    )
    task: Name | None = Field(default=None, description="A label for the log.")
    expected: StrictStr | None = Field(default=None, description="The right answer, for the judge `exact_match`.")
    off: StrictBool | None = Field(default=False, description="Turn routing off: the default model serves.")
    explain: StrictBool | None = Field(
        default=False, description="Send the ranking of models in the header `x-fedrouter-ranking`."
    )


KNOBS = ("tradeoff", "dial", "quality")
"""Options that set λ; a request may set one of them."""
DEFAULTS = RequestOptions()
"""The options of a request that sets none."""
NAMES = tuple(RequestOptions.model_fields)
EXPECTED = {
    "tradeoff": f"expected a number from 0 to {MAX_NUMBER:g}",
    "dial": "expected a number from 0 to 10",
    "quality": "expected a number from 0 to 1",
    "max_cost": f"expected a number from 0 to {MAX_NUMBER:g}",
    "allow": "expected model names, which may contain * and ?",
    "max_price": f"expected a number from 0 to {MAX_NUMBER:g}",
    "session_budget": f"expected a number from 0 to {MAX_NUMBER:g}",
    "expected": "expected the text of a right answer",
    "off": "expected true or false",
    "explain": "expected true or false",
}
"""What to say about a wrong value; the other options are names."""


def read_options(
    headers: Mapping[bytes, bytes], inside: Any, model: Any, pool: Mapping[str, int], family: str | None
) -> tuple[RequestOptions, str | None]:
    """The options of a request, and the model of the pool that it names, if any.

    ``inside`` is what the body has under ``fedrouter`` and ``model`` its model. The body takes precedence over headers,
    and both over the λ in a model name.
    """
    found = _from_headers(headers)
    if inside is not None:
        if found:
            _validated(found)  # an invalid header is an error even if the body overrides it
        found = _merged(found, inside)
    options = _validated(found) if found else DEFAULTS  # most requests set none: nothing to validate
    if len(set_ := [name for name in KNOBS if getattr(options, name) is not None]) > 1:
        raise _invalid(f"fedrouter.{set_[1]}", f"set a {set_[0]} or a {set_[1]}, not both")
    if model == "auto":
        return options, None
    named = _named(model, pool)
    if named is None:
        tradeoff = _tradeoff_in_name(model, family)
        if not set_:
            options = options.model_copy(update={"tradeoff": tradeoff})
    return options, named


def _from_headers(headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for header, raw in headers.items():
        if not header.startswith(HEADER):
            continue
        shown, value = header.decode("latin-1"), raw.decode("latin-1").strip()
        name = shown[len(HEADER) :].replace("-", "_")
        if name not in NAMES:
            raise _invalid(shown, f"unknown option; expected one of {', '.join(NAMES)}")
        if name in (*KNOBS, "latency", "max_cost", "max_price", "session_budget"):
            try:
                found[name] = float(value)
            except ValueError:
                raise _invalid(shown, "expected a number") from None
        elif name == "allow":
            found[name] = [part.strip() for part in value.split(",") if part.strip()]
        elif name in ("off", "explain"):
            if value.lower() not in ("true", "false", "1", "0"):
                raise _invalid(shown, "expected true or false")
            found[name] = value.lower() in ("true", "1")
        else:
            found[name] = value
    return found


def _merged(found: dict[str, Any], inside: Any) -> dict[str, Any]:
    """Options from headers overridden by those from the body."""
    if not isinstance(inside, dict):
        raise _invalid("fedrouter", "expected an object with options")
    given = {name: value for name, value in inside.items() if value is not None or name not in NAMES}
    if not given.keys().isdisjoint(KNOBS):  # one of them in the body replaces any in headers
        found = {name: value for name, value in found.items() if name not in KNOBS}
    return found | given


def _validated(found: dict[str, Any]) -> RequestOptions:
    try:
        return RequestOptions.model_validate(found)
    except ValidationError as error:
        problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
        name = str(problems[0]["loc"][0])
        if problems[0]["type"] == "extra_forbidden":
            raise _invalid("fedrouter", f"unknown option {name[:40]!r}; expected one of {', '.join(NAMES)}") from None
        raise _invalid(
            f"fedrouter.{name}", EXPECTED.get(name, f"expected text of at most {MAX_NAME} characters")
        ) from None


def _named(model: Any, pool: Mapping[str, int]) -> str | None:
    """The model of the pool with this name; None for a name of the router itself, ``router-<family>-<λ>``."""
    if not isinstance(model, str) or not model:
        raise _invalid("model", "expected 'auto', 'router-<family>-<λ>' or the name of a model")
    if model in pool:
        return model
    if model.startswith("router-"):
        return None
    raise _invalid("model", "no such model; GET /v1/models lists them", "model_not_found", 404)


def _tradeoff_in_name(model: str, family: str | None) -> float:
    name, _, number = model.removeprefix("router-").partition("-")
    try:
        tradeoff = float(number)
    except ValueError:
        tradeoff = math.nan
    if name != family or not 0 <= tradeoff <= MAX_NUMBER:
        expected = f"expected router-{family or '<family>'}-<λ> with λ from 0 to {MAX_NUMBER:g}"
        raise _invalid("model", expected, "model_not_found", 404)
    return tradeoff


def _invalid(param: str, message: str, code: str = "invalid_value", status: int = 400) -> HttpError:
    return HttpError(status, f"{param}: {message}.", code, param=param)
