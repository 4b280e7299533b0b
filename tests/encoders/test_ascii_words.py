"""Words of ASCII texts by array operations: the same counts and tokens as one by one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedrouter.encoders import static
from fedrouter.encoders.shape import Counts
from fedrouter.encoders.static import MOST, WIDTH, AsciiWords, static_encoder

TOKENIZER = static_encoder()._tokenizer
WORDS = AsciiWords(TOKENIZER.of_word)
TEXT = st.text(st.characters(max_codepoint=127), max_size=300) | st.text("ab1 \n\t\x1c(\x00the", max_size=MOST)


def assert_equal_to_one_by_one(words, text):
    [found] = words.read([text], [2 * len(text)])
    assert_is_of(found, text)


def assert_is_of(found, text):
    counts, tokens = found
    expected = Counts.of(text, 2 * len(text))
    assert tokens.tolist() == TOKENIZER.tokens(text)
    for field in dataclasses.fields(Counts):
        assert getattr(counts, field.name) == getattr(expected, field.name), field.name


@settings(max_examples=100, deadline=None)
@given(TEXT)
@example("")
@example(" \n")
@example("a a\x00 \x00a a")
@example("x" * MOST)
@example(f"before {'z1' * WIDTH} between {'q9' * WIDTH} {'q9' * WIDTH} after")
@example("    1) def the return\n```the 2nd\n\tThe")
def test_a_text_has_the_words_that_it_has_one_by_one(text):
    for _ in range(2):  # then from the table
        assert_equal_to_one_by_one(WORDS, text)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXT, max_size=3))
@example(["", "a b", "", " ", "b"])
@example([f"{'z1' * WIDTH} a", "b", f"c {'z1' * WIDTH} {'q9' * WIDTH}"])
@example(["x" * (MOST - 1)] * 3 + ["x" * (MOST - 2)])
def test_texts_that_are_read_together_do_not_touch_each_other(texts):
    for found, text in zip(WORDS.read(texts, [2 * len(text) for text in texts]), texts, strict=True):
        assert_is_of(found, text)


@pytest.mark.parametrize("bits", [1, 3])
def test_words_that_share_a_row_of_the_table_do_not_take_each_others_tokens(monkeypatch, bits):
    for name, value in (("_FIRST", 64 - bits), ("_SECOND", 64 - 2 * bits), ("_MASK", (1 << bits) - 1)):
        monkeypatch.setattr(static, name, np.uint64(value))
    words = AsciiWords(TOKENIZER.of_word)
    for _ in range(3):
        assert_equal_to_one_by_one(
            words, "the quick brown fox jumps over the lazy dog 3 times and returns the next day"
        )


def test_a_word_is_divided_only_when_it_is_not_in_the_table():
    divided = []
    words = AsciiWords(lambda word: divided.append(word) or TOKENIZER.of_word(word))
    list(words.read(["once upon a time"], [16]))
    assert sorted(divided) == ["a", "once", "time", "upon"]
    list(words.read(["once upon another time"], [22]))
    assert divided[4:] == ["another"]
