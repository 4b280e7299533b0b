"""The statistics of a text's shape: what each one notices, and that all are bounded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.encoders.shape import BOUND, STATISTICS, Counts, standardized, statistics_of
from fedrouter.encoders.static import static_encoder

NAMES = [statistic.name for statistic in STATISTICS]
PLAIN = "Tell me about the history of the city in a few words."


def shape(text):
    return dict(zip(NAMES, statistics_of(Counts.of(text, len(text))), strict=True))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("length", PLAIN * 10),
        ("word length", "Antidisestablishmentarianism notwithstanding"),
        ("longest word", f"{PLAIN} https://example.org/a/very/long/address"),
        ("lines", PLAIN.replace(" ", "\n")),
        ("repeated words", "the cat and the dog and the cow"),
        ("uppercase", PLAIN.upper()),
        ("digits", "12345 and 67890"),
        ("numbers", "What is 12 + 30 - 4?"),
        ("punctuation", '"Well," (she said), "no!"'),
        ("question marks", "Why? How? When?"),
        ("code signs", "x[0] = {'a': [1, 2]}; y = &x;"),
        ("code words", "def f(x): return x"),
        ("indented lines", "def f(x):\n    y = x\n    return y"),
        ("mathematics", "Solve x^2 + 2*x = $\\frac{1}{2}$ ≤ √3"),
        ("options", "Which one?\nA. red\nB. green\nC. blue\n(D) black"),
        ("English words", "the cat is on the mat"),
        ("accented letters", "où êtes-vous allés cet été"),
        ("other alphabets", "где находится библиотека"),
        ("Chinese, Japanese, Korean", "图书馆在哪里 도서관 図書館"),
    ],
)
def test_a_statistic_is_larger_for_a_text_that_has_what_it_counts(name, text):
    assert shape(text)[name] > shape(PLAIN)[name] + 0.05


def test_what_a_text_lacks_is_zero_so_that_most_texts_are_equal_in_it():
    bare = dict(zip(NAMES, static_encoder().encode(["a"])[0, -len(STATISTICS) :], strict=True))
    assert [name for name, value in bare.items() if value] == ["length", "word length", "longest word", "English words"]


def test_there_is_a_text_for_every_statistic():
    parameters = test_a_statistic_is_larger_for_a_text_that_has_what_it_counts.pytestmark[0].args[1]
    assert [name for name, _ in parameters] == NAMES


def test_the_length_is_that_of_the_whole_text():
    assert shape(PLAIN)["length"] < statistics_of(Counts.of(PLAIN, 100_000))[0]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_standardized_statistics_are_finite_and_bounded(text):
    found = standardized(statistics_of(Counts.of(text, 10**9)), np.zeros(len(STATISTICS), np.float32), np.float32(0.05))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= BOUND
