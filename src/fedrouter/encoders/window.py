"""Truncation of a long text to what an encoder can read: the end is kept, where the question is."""

from __future__ import annotations

from typing import Protocol


class Tokenizer(Protocol):
    """What truncation needs of a tokenizer; those of transformers have it."""

    def encode(self, text: str, *, add_special_tokens: bool, verbose: bool) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


def fit_window(text: str, tokenizer: Tokenizer, window: int) -> str:
    """Return the end of a text that fits an encoder's window of ``window`` tokens.

    An encoder cuts a long text at the end; but long prompts begin with instructions and worked examples and end with
    the question. So whole paragraphs are kept from the end while they fit, and at least the last tokens.
    """
    room = window - 2  # the start and end tokens
    if len(text) <= room:  # a token is at least a character
        return text
    ids = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    if len(ids) <= room:
        return text
    kept = ""
    for paragraph in reversed(text.split("\n\n")):
        longer = f"{paragraph}\n\n{kept}" if kept else paragraph
        if len(tokenizer.encode(longer, add_special_tokens=False, verbose=False)) > room:
            break
        kept = longer
    return kept.strip() or str(tokenizer.decode(ids[-room:]))
