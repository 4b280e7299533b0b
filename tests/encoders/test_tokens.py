"""Words to tokens: the pieces of a vocabulary, the most frequent ones first."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrouter.data.simulator import simulated_world
from fedrouter.encoders.static import LONGEST, Tokenizer, static_encoder

BYTES = [f"<{byte}>" for byte in range(256)]


@pytest.fixture(scope="module")
def shipped():
    return static_encoder()._tokenizer


def tokens_of(pieces, text):
    vocabulary = ["<unknown>", *BYTES, *pieces]
    return [vocabulary[token] for token in Tokenizer(vocabulary, 1).tokens(text)]


def test_the_most_frequent_piece_is_merged_first():
    assert tokens_of(["▁", "a", "b", "c", "bc", "ab"], "abc") == ["▁", "a", "bc"]
    assert tokens_of(["▁", "a", "b", "c", "ab", "bc"], "abc") == ["▁", "ab", "c"]


def test_of_equal_pieces_the_left_one_is_merged_first():
    assert tokens_of(["▁", "a", "aa"], "aaa") == ["▁", "aa", "a"]


def test_a_character_outside_the_vocabulary_becomes_its_bytes():
    assert tokens_of(["▁", "a"], "aé") == ["▁", "a", "<195>", "<169>"]


def test_the_name_of_a_byte_in_a_text_is_no_byte():
    assert tokens_of(["▁", "<", "6", "5", ">"], "<65>") == ["▁", "<", "6", "5", ">"]


def test_space_counts_only_as_the_end_of_a_word(shipped):
    assert shipped.tokens(" a\n\n cat\t") == shipped.tokens("a cat")
    assert shipped.tokens(" \n") == shipped.tokens("") == []


@given(st.integers(1, 4 * LONGEST))
def test_a_word_of_any_length_keeps_all_of_its_characters(length):
    word = "".join(chr(0x4E00 + index) for index in range(length))
    found = tokens_of(["▁", *word], word)
    assert "".join(found) == "▁" + word


def test_words_are_remembered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr("fedrouter.encoders.static.REMEMBERED", 3)
    tokenizer, divided = Tokenizer(["<unknown>", *BYTES, "▁"], 1), []
    merged = tokenizer._merged
    monkeypatch.setattr(tokenizer, "_merged", lambda word: divided.append(word) or merged(word))
    expected = tokenizer.tokens("again")
    assert tokenizer.tokens("again again again") == 3 * expected
    assert divided == ["▁again"]
    for word in ("a", "b", "c", "d", "e" * LONGEST):
        tokenizer.tokens(word)
    assert len(tokenizer._remembered) <= 3
    assert tokenizer.tokens("again") == expected


@pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="needs the package that the table is from")
def test_words_are_divided_as_by_the_tokenizer_that_the_vectors_were_trained_with(shipped):
    theirs = pytest.importorskip("tokenizers").Tokenizer.from_file(
        str(Path(importlib.util.find_spec("wordllama").origin).parent / "tokenizers/l2_supercat_tokenizer_config.json")
    )
    words = sorted({word for text in simulated_world().evaluations.text for word in text.split()})
    words += ["naïve", "Straße", "слова", "単語", "🙂", "don't", "f(x)=x^2;", "a1b2c3"]
    different = [
        word
        for word in words
        if len(word) < LONGEST and shipped.tokens(word) != theirs.encode(word, add_special_tokens=False).ids
    ]
    assert different == []
    assert len(words) > 2000
