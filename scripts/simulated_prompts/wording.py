"""Wording rules shared by the prompt families, so that templates stay short and read as correct English.

Slot lists are written as plain text: entries stand between semicolons, and in a graded list every group of
entries opens with the difficulty they add, as in "0.2: a sonnet; a villanelle".
"""

import random
import re
from collections.abc import Callable, Sequence

Prompt = tuple[str, float]
Graded = list[tuple[str, float]]
Template = Callable[[random.Random], Prompt]

EASIEST, HARDEST = 0.05, 0.95


def listed(text: str) -> list[str]:
    """The entries of a list written as text, separated by semicolons or line ends."""
    return [entry.strip() for entry in re.split(r"[;\n]", text) if entry.strip()]


def graded(text: str) -> Graded:
    """The entries of a graded list, each with the grade its group opens with; a group may run over lines."""
    _, *groups = re.split(r"(?:^|\n)\s*(\d\.\d+):", text)
    return [
        (entry, float(grade))
        for grade, entries in zip(groups[::2], groups[1::2], strict=True)
        for entry in listed(" ".join(entries.split()))
    ]


def graded_code(text: str) -> Graded:
    """Code blocks as a graded list; a line such as "== 0.4" opens each block."""
    _, *blocks = re.split(r"^== (\d\.\d+)\n", text, flags=re.MULTILINE)
    return [(code.rstrip(), float(grade)) for grade, code in zip(blocks[::2], blocks[1::2], strict=True)]


def ungraded(text: str) -> Graded:
    """A slot list whose entries add nothing to the difficulty."""
    return [(entry, 0.0) for entry in listed(text)]


def level(value: float) -> float:
    """A difficulty, held inside the range all families share."""
    return round(min(HARDEST, max(EASIEST, value)), 3)


def plural(noun: str) -> str:
    """The plural of a regular noun; of "bar of soap", only the head changes."""
    head, of, rest = noun.partition(" of ")
    return head + ("es" if head.endswith(("s", "x", "ch", "sh")) else "s") + of + rest


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless the number is one."""
    return f"{number} {noun if number == 1 else plural(noun)}"


def joined(items: Sequence[object], last: str = "and") -> str:
    """Items as an English enumeration: "a, b and c"."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def with_articles(text: str) -> str:
    """Turns every "a/an" into the article that the next word needs."""

    def article(match: re.Match[str]) -> str:
        word = match[2].lower()
        vowel = word[0] in "aeiou8" or word in ("hour", "hourly", "honest", "heir", "11", "18")
        sounds_like_y = word.startswith(("uni", "use", "usu", "eu", "one", "ut"))
        return f"{match[1]}{'n' if vowel and not sounds_like_y else ''} {match[2]}"

    return re.sub(r"\b([Aa])/an (\w+)", article, text)


def fill(rng: random.Random, template: str, slots: dict[str, Graded]) -> Prompt:
    """Fills a template and adds up the difficulty of what was drawn.

    {slot} draws from the list of that name and repeats the same text where it occurs again; {slot2} draws
    another entry from the same list, unless it has a list of its own; {3-9} draws a number;
    "|" breaks the line.
    """
    drawn: dict[str, tuple[str, float]] = {}

    def draw(match: re.Match[str]) -> str:
        name = match[1]
        if name not in drawn:
            entries = slots.get(name) or slots[name.rstrip("0123456789")]
            unused = [entry for entry in entries if entry not in drawn.values()]
            drawn[name] = rng.choice(unused)
        return drawn[name][0]

    text = template
    while re.search(r"\{[a-z_]+\d*\}", text):
        text = re.sub(r"\{([a-z_]+\d*)\}", draw, text)
    text = re.sub(r"\{(\d+)-(\d+)\}", lambda match: str(rng.randint(int(match[1]), int(match[2]))), text)
    text = re.sub(r"[ ]*\|[ ]*", "\n", with_articles(text))
    return re.sub(r" {2,}", " ", text).strip(), sum(grade for _, grade in drawn.values())


def filled(rng: random.Random, templates: Graded, slots: dict[str, Graded]) -> Prompt:
    """Draws one graded template, fills it, and returns the prompt with its whole difficulty."""
    template, base = rng.choice(templates)
    text, added = fill(rng, template, slots)
    return text, level(base + added)
