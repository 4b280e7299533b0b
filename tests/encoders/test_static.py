"""The encoder `static`: an embedding for every text, in a bounded number of steps, that says what a router needs."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.data.simulator import simulated_world
from fedrouter.encoders import STATIC
from fedrouter.encoders import static as module
from fedrouter.encoders.identity import EncoderIdentity
from fedrouter.encoders.shape import READ, STATISTICS
from fedrouter.encoders.static import (
    FOLDER,
    LONGEST,
    TOKENS,
    WINDOW,
    StaticEncoder,
    Tokenizer,
    last_paragraphs,
    static_encoder,
)
from fedrouter.encoders.weights import STATIC_FILES, STATIC_WEIGHTS, WrongWeights, weights_digest

SCRIPTS = [
    chr(start + letter) + chr(start + letter + 1)
    for letter in (5, 9)
    for start in (
        *(0x41, 0xE0, 0x390, 0x410, 0x531, 0x5D0, 0x620, 0x710, 0x780, 0x7C0, 0x800, 0x840, 0x904, 0x985, 0xA05, 0xA85),
        *(
            0xB05,
            0xB85,
            0xC05,
            0xC85,
            0xD05,
            0xD85,
            0xE01,
            0xE81,
            0xF40,
            0x1000,
            0x10A0,
            0x1100,
            0x1200,
            0x13A0,
            0x1401,
        ),
        *(0x1680, 0x16A0, 0x1780, 0x1820, 0x2C00, 0x2D30, 0x3041, 0x30A1, 0x4E00, 0xA000, 0xAC00, 0x10330, 0x12000),
    )
]
ODD = {
    "nothing": "",
    "space": " \n\t " * 1000,
    "a megabyte": "The quick brown fox. " * 50_000,
    "one long word": "a" * 1_000_000,
    "control characters": "".join(map(chr, range(32))) * 100,
    "forty scripts": " ".join(SCRIPTS),
    "scripts without spaces": "".join(SCRIPTS) * 1000,
    "emoji": "🎉👩‍👩‍👧‍👦🏳️‍🌈" * 5000,
    "base64": "VGhlIHF1aWNrIGJyb3duIGZveA+/" * 20_000,
    "lone surrogates": "\ud800 and \udfff" * 1000,
    "NUL": "\x00" * 10_000,
    "Chinese": "快速的棕色狐狸跳过懒狗" * 10_000,
    "newlines": "\n" * 1_000_000,
    "unassigned": "\U000e0fff\U0010ffff" * 500,
}


@pytest.fixture(scope="module")
def encoder():
    return static_encoder()


@pytest.mark.parametrize("name", ODD)
def test_an_odd_text_has_an_embedding_of_length_one(encoder, name):
    embedding = encoder.encode([ODD[name]])
    assert embedding.dtype == np.float32
    assert embedding.shape == (1, encoder.identity().dimension)
    assert np.linalg.norm(embedding) == pytest.approx(1.0, abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_any_text_has_an_embedding_of_length_one(text):
    assert np.linalg.norm(static_encoder().encode([text])) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", ODD)
def test_what_is_read_of_a_text_is_bounded(encoder, name, monkeypatch):
    """Counts the steps instead of the time: characters that are merged, and vectors that are added."""
    merged, added = [], []
    merge, words = Tokenizer._merged, StaticEncoder._words

    def counted_merge(self, word):
        merged.append(len(word))
        return merge(self, word)

    def counted_words(self, text):
        added.append(len(text))
        return words(self, text)

    monkeypatch.setattr(Tokenizer, "_merged", counted_merge)
    monkeypatch.setattr(StaticEncoder, "_words", counted_words)
    fresh = StaticEncoder()
    fresh.encode([ODD[name]])
    assert max(merged, default=0) <= LONGEST  # merging is quadratic in the length of a part
    assert sum(merged) <= 2 * WINDOW  # a start sign for each word
    assert max(added) <= WINDOW


def test_no_more_tokens_than_the_limit_are_averaged(encoder, monkeypatch):
    seen = []

    class Table(np.ndarray):
        def take(self, tokens, axis):
            seen.append(len(tokens))
            return np.asarray(self).take(tokens, axis)

    fresh = StaticEncoder()
    fresh._vectors = fresh._vectors.view(Table)
    fresh.encode([ODD["emoji"], ODD["Chinese"]])
    assert 0 < max(seen) <= TOKENS


def test_the_end_of_a_long_text_decides_its_words(encoder):
    ask = "\n\nWhat is the capital of Peru?"
    width = encoder.identity().dimension - len(STATISTICS)
    filler = "\n\n".join(["All about the sea, its fish and its tides."] * 500)
    assert len(filler) > READ > WINDOW
    one, other = (encoder.encode([text])[0, :width] for text in (filler + ask, "x" * READ + ask))
    assert not np.allclose(one, other)
    alone = encoder.encode([ask.strip()])[0, :width]
    assert other @ alone / np.linalg.norm(other) / np.linalg.norm(alone) > 0.999


def test_whole_paragraphs_are_kept_where_they_fit():
    assert last_paragraphs("short", 10) == "short"
    assert last_paragraphs("first\n\nsecond\n\nthird", 12) == "third"
    assert last_paragraphs("first\n\nsecond\n\nthird", 17) == "second\n\nthird"
    assert last_paragraphs("one paragraph only", 9) == "raph only"
    assert last_paragraphs("text\n\n  ", 7) == "ext\n\n  "


def test_an_embedding_depends_on_its_text_alone(encoder):
    texts = ["What is a cat?", "", "def f(x):\n    return x", ODD["Chinese"]]
    assert np.array_equal(encoder.encode(texts), np.concatenate([StaticEncoder().encode([text]) for text in texts]))


def test_progress_is_reported_to_the_end(encoder):
    seen = []
    encoder.encode(["text"] * 600, lambda done, total: seen.append((done, total)))
    assert seen == [(256, 600), (512, 600), (600, 600)]


def test_no_texts_give_no_rows(encoder):
    assert encoder.encode([]).shape == (0, encoder.identity().dimension)


def test_similar_texts_are_nearer_than_others(encoder):
    cat, kitten, integral = encoder.encode(
        ["What does a cat eat?", "Which food do kittens eat?", "Compute the integral of x^2 from 0 to 3."]
    )
    assert cat @ kitten > cat @ integral + 0.2


def test_the_identity_names_the_table(encoder):
    assert encoder.identity() == EncoderIdentity(STATIC, 256 + len(STATISTICS), True, f"sha256:{STATIC_WEIGHTS}")
    assert weights_digest(FOLDER) == f"sha256:{STATIC_WEIGHTS}"


def test_the_shipped_prompts_have_this_encoders_embeddings(encoder):
    """A change of code that changes embeddings makes another encoder: it needs another table digest, or none at all."""
    world = simulated_world().evaluations
    found = encoder.encode(world.text[::20])
    assert np.abs(found - world.embeddings[::20]).max() < 1e-3  # stored in half precision


@pytest.mark.parametrize("name", STATIC_FILES)
def test_an_altered_table_is_refused(tmp_path, monkeypatch, name):
    for each in STATIC_FILES:
        shutil.copy(FOLDER / each, tmp_path)
    content = bytearray((FOLDER / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    with pytest.raises(WrongWeights, match=rf"{name}: refused.*pip install --force-reinstall fedrouter"):
        StaticEncoder()
    (tmp_path / name).unlink()
    with pytest.raises(WrongWeights, match=rf"{name}: cannot be read"):
        StaticEncoder()


def test_it_imports_no_neural_network_and_no_tokenizer():
    program = (
        "import sys, json; from fedrouter.encoders.registry import open_encoder;"
        "v = open_encoder().encode(['What is a cat?']);"
        "heavy = {'torch', 'transformers', 'tokenizers', 'onnxruntime', 'scipy', 'sklearn', 'pyarrow', 'wordllama'};"
        "print(json.dumps([sorted(heavy & set(sys.modules)), v.shape]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], [1, 256 + len(STATISTICS)]]


@pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="needs the package that the table is from")
def test_the_table_is_what_the_script_makes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    from make_static_table import tables

    assert tables() == {name: (FOLDER / name).read_bytes() for name in STATIC_FILES}


def test_a_text_has_the_same_embedding_whatever_it_is_encoded_with():
    texts = [
        "",
        "one",
        "Übung",
        "x " * 2047,
        "y" * 4096,
        "z" * 4097,
        "\ud800",
        "a b c",
        "1) yes\n2) no",
        "",
        "w " * 2048,
    ]
    together = static_encoder().encode(texts * 2)
    alone = [static_encoder().encode([text])[0] for text in texts]
    assert np.array_equal(together, alone * 2)
