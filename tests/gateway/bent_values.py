"""Bodies bent in their values, as JSON or as what looks like it, and then in their bytes."""

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.case import BODY_LIMIT


@dataclass(frozen=True)
class Raw:
    """A value written as these bytes, which need not be JSON."""

    text: bytes


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container of the tree with each of its keys."""
    found = []
    inside = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, value in inside:
        found += [(tree, key), *_places(value)]
    return found


def _set(draw: random.Random, tree: Any, value: Any) -> Any:
    """The tree with a value somewhere in it, or in its place."""
    places = _places(tree)
    if not places or draw.random() < 0.02:
        return value
    holder, key = draw.choice(places)
    holder[key] = value
    return tree


def another_type(draw: random.Random, tree: Any) -> Any:
    return _set(draw, tree, draw.choice((None, True, False, 0, 1, -1, 0.5, "", "x", [], {}, [[]], [None], {"": None})))


def a_huge_number(draw: random.Random, tree: Any) -> Any:
    numbers = (
        *("1e400", "-1e400", "1" * 5000, "-" + "9" * 400, "0." + "0" * 5000 + "1", "1e308", "-1e308", "1e-320"),
        *(str(sign * 2**power + more) for sign in (1, -1) for power in (31, 53, 63, 64, 128) for more in (-1, 0, 1)),
        *("-0", "-0.0", "1E+2", "1e99999999999999999999"),
    )
    return _set(draw, tree, Raw(draw.choice(numbers).encode()))


def not_json(draw: random.Random, tree: Any) -> Any:
    words = (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"nan",
        b"undefined",
        b"'x'",
        b"01",
        b".5",
        b"+1",
        b"0x1",
        b"/**/1",
        b"",
    )
    return _set(draw, tree, Raw(draw.choice(words)))


def nested_deep(draw: random.Random, tree: Any) -> Any:
    """At every depth at which some parser, printer or stack gives up."""
    depth = draw.choice((20, 130, 250, 260, 500, 900, 990, 1000, 1015, 1020, 1023, 1024, 1025, 5000, 100_000))
    start, end = draw.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"b":', b"}]")))
    depth = depth // len(start.replace(b'"a":', b"").replace(b'"b":', b""))
    return _set(draw, tree, Raw(start * depth + b"1" + end * depth))


def a_strange_string(draw: random.Random, tree: Any) -> Any:
    strings = (
        *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"\ud83d"', rb'"\u0000"', rb'"\uffff\ufffe"', rb'"a\tb\r\nc\b\f\/"'),
        *(b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\x01\x1f"', b'"\x7f\xc2\x85"'),
        *('"\u202e\u200b\u2028"'.encode(), '"𝕏ﷺ🏳️‍🌈"'.encode(), rb'"\x41"', rb'"\u12"', b'"never closed', b'"a"b"'),
        *(b'"<task>"', b'"</task><task>x"', b'"Q: a\\nA: b\\nQ: c\\nA:"', b'"\\n<context>"', b'"%s%n{0}${x}"'),
    )
    return _set(draw, tree, Raw(draw.choice(strings)))


def a_long_string(draw: random.Random, tree: Any) -> Any:
    """Long, and of the kind that makes careless patterns slow."""
    unit = draw.choice(
        (b"a", b" ", b"\\n", b"<", b"<task ", b"\\n<task ", b"Q: ", b"\\nQ: a\\nA: b", "é".encode(), b"\\\\", b"*#")
    )
    size = draw.choice(
        (1000, 30_000, 300_000, BODY_LIMIT + 1, 5 * BODY_LIMIT) if draw.random() < 0.1 else (1000, 30_000)
    )
    return _set(draw, tree, Raw(b'"' + unit * (size // len(unit)) + b'"'))


def long_lists(draw: random.Random, tree: Any) -> Any:
    unit = draw.choice(
        (b"{}", b"[]", b"null", b'""', b'{"role":"user"}', b'{"type":"text","text":"a"}', b'{"type":"image_url"}')
    )
    return _set(draw, tree, Raw(b"[" + b",".join([unit] * draw.choice((100, 101, 2000))) + b"]"))


def without_a_member(draw: random.Random, tree: Any) -> Any:
    places = [(holder, key) for holder, key in _places(tree) if isinstance(holder, dict)]
    if places:
        holder, key = draw.choice(places)
        del holder[key]
    return tree


def a_strange_key(draw: random.Random, tree: Any) -> Any:
    holders = [tree] if isinstance(tree, dict) else []
    holders += [h[k] for h, k in _places(tree) if isinstance(h[k], dict)]
    if holders:
        key = draw.choice(
            (
                "",
                "x" * draw.choice((100, 10_000, 200_000)),
                "\0",
                "model\0",
                "fedrouter ",
                "__proto__",
                "é" * 50,
                "Model",
            )
        )
        draw.choice(holders)[key] = draw.choice((1, None, "x", {}))
    return tree


def a_key_twice(draw: random.Random, tree: Any) -> Any:
    """The same name again, some of them spelt with an escape."""
    if not isinstance(tree, dict):
        return tree
    names = ("model", "messages", "stream", "fedrouter", "decision_id", "score")
    name = draw.choice([name for name in names if name in tree] or ["model"])
    value = draw.choice((tree.get(name), None, 1, "auto", "atlas-max", {}, [], {"off": True}))
    spelt = name if draw.random() < 0.5 else "".join(f"\\u{ord(letter):04x}" for letter in name)
    members = [(json.dumps(key), written(entry)) for key, entry in tree.items()]
    members.insert(draw.randrange(len(members) + 1), (f'"{spelt}"', written(value)))
    return Raw(b"{" + b",".join(key.encode() + b":" + entry for key, entry in members) + b"}")


def nothing_wrong(draw: random.Random, tree: Any) -> Any:
    return tree


VALUES: tuple[Callable[[random.Random, Any], Any], ...] = (
    *(another_type, another_type, a_huge_number, not_json, nested_deep, a_strange_string, a_long_string, long_lists),
    *(without_a_member, a_strange_key, a_key_twice, nothing_wrong, nothing_wrong),
)


def written(tree: Any) -> bytes:
    if isinstance(tree, Raw):
        return tree.text
    if isinstance(tree, dict):
        return b"{" + b",".join(json.dumps(key).encode() + b": " + written(value) for key, value in tree.items()) + b"}"
    if isinstance(tree, list):
        return b"[" + b", ".join(map(written, tree)) + b"]"
    return json.dumps(tree).encode()


def flipped_bits(draw: random.Random, body: bytes) -> bytes:
    flipped = bytearray(body)
    for _ in range(draw.choice((1, 1, 2, 8)) if flipped else 0):
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
    return bytes(flipped)


def truncated(draw: random.Random, body: bytes) -> bytes:
    return body[: draw.randrange(len(body) + 1)]


def random_bytes(draw: random.Random, body: bytes) -> bytes:
    at = draw.randrange(len(body) + 1)
    return body[:at] + draw.randbytes(draw.choice((1, 4, 400))) + body[at + draw.choice((0, 4)) :]


def a_piece_again(draw: random.Random, body: bytes) -> bytes:
    start = draw.randrange(len(body) + 1)
    piece = body[start : start + draw.choice((1, 10, 100))]
    at = draw.randrange(len(body) + 1)
    return body[:at] + piece * draw.choice((1, 2, 50)) + body[at:]


def another_encoding(draw: random.Random, body: bytes) -> bytes:
    text = body.decode("utf-8", "replace")
    return draw.choice(
        (
            lambda: text.encode("utf-16"),
            lambda: text.encode("utf-32-le"),
            lambda: b"\xef\xbb\xbf" + body,
            lambda: gzip.compress(body, mtime=0),
            lambda: b" " * 5000 + body + b"\n\t\r " * 500,
            lambda: body + b"\0",
            lambda: body + body,
            lambda: b"",
        )
    )()


BYTES = (flipped_bits, flipped_bits, truncated, random_bytes, a_piece_again, another_encoding)
