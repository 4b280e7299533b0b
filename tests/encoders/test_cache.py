"""A text is encoded once; whatever happens to the cache, a run goes on."""

import json
import logging
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from fedrouter.data.read import read
from fedrouter.encoders import OFFLINE
from fedrouter.encoders.cache import CachedEncoder, Store, cache_folder
from fedrouter.encoders.location import locate, offline_folder
from fedrouter.encoders.sentence import SentenceEncoder
from fedrouter.encoders.weights import folder_fingerprint
from fedrouter.errors import FedrouterError

TEXTS = ["What is a cat?", "Add 2 and 3.", "A much longer question about nothing in particular. " * 3]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def straight():
    return SentenceEncoder()


@pytest.fixture(scope="module")
def filled(tmp_path_factory, straight):
    """A cache that has the texts, to be copied by tests that need no encoder."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    before = os.environ.get("FEDROUTER_CACHE")
    os.environ["FEDROUTER_CACHE"] = str(folder)
    try:
        CachedEncoder().encode(TEXTS)
    finally:
        os.environ.pop("FEDROUTER_CACHE") if before is None else os.environ.update(FEDROUTER_CACHE=before)
    return folder


def loads(monkeypatch):
    """Counts how often an encoder is really loaded."""
    count = []
    real = SentenceEncoder.__init__
    monkeypatch.setattr(SentenceEncoder, "__init__", lambda self, *given: (count.append(given), real(self, *given))[1])
    return count


def only(folder, pattern="*.sqlite"):
    (path,) = folder.glob(pattern)
    return path


def test_cached_embeddings_are_the_encoders_own_in_the_order_asked_for(straight):
    texts = [*TEXTS, TEXTS[0]]
    first = CachedEncoder().encode(texts)
    assert first == pytest.approx(straight.encode(texts), abs=1e-6)
    assert np.array_equal(CachedEncoder().encode(texts[::-1]), first[::-1])


def test_what_is_known_needs_no_encoder(cache, filled, monkeypatch):
    shutil.copytree(filled, cache)
    count, seen = loads(monkeypatch), []
    embeddings = CachedEncoder().encode(TEXTS, lambda *step: seen.append(step))
    assert embeddings.shape == (3, 384)
    assert embeddings.dtype == np.float32
    assert (count, seen) == ([], [])


def test_only_what_is_new_is_encoded_and_told_of(cache, filled):
    shutil.copytree(filled, cache)
    seen = []
    CachedEncoder().encode([*TEXTS, "Something new?"], lambda *step: seen.append(step))
    assert seen == [(4, 4)]


def test_a_second_read_of_a_file_takes_no_encoder(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    path.write_text("prompt,model,accuracy,cost\n" + "".join(f"{text},m,1,0.1\n" for text in TEXTS))
    first = read(path)
    count = loads(monkeypatch)
    second = read(path)
    assert count == []
    assert second.encoder == first.encoder
    assert second.evaluations.digest() == first.evaluations.digest()


def test_a_process_that_finds_everything_does_not_even_import_torch(cache, filled):
    shutil.copytree(filled, cache)
    program = (
        "import sys, json; from fedrouter.encoders.cache import CachedEncoder;"
        f"v = CachedEncoder().encode({TEXTS!r}); print(json.dumps(['torch' in sys.modules, v.shape]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, [3, 384]]


def test_no_text_is_in_the_cache_and_it_is_the_users_alone(cache, filled):
    shutil.copytree(filled, cache)
    CachedEncoder().encode(TEXTS)
    for path in (cache, *cache.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    content = b"".join(path.read_bytes() for path in cache.iterdir())
    assert not any(word in content for word in (b"cat", b"question", b"particular"))


def test_another_model_under_the_same_name_has_a_cache_of_its_own(tmp_path, cache):
    folder = tmp_path / "encoder"
    shutil.copytree(offline_folder(), folder)
    before = folder_fingerprint(folder)
    store = Store(cache / "a.sqlite", before)
    store.put(["text"], np.eye(1, 4, dtype=np.float32))
    (folder / "1_Pooling" / "config.json").write_text((folder / "1_Pooling" / "config.json").read_text() + " ")
    after = folder_fingerprint(folder)
    assert after != before
    assert Store(cache / "a.sqlite", before).get(["text"])
    assert not Store(cache / "a.sqlite", after).get(["text"])  # not even in the same file


def test_a_fingerprint_is_of_the_files_not_of_where_they_lie(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "onnx").mkdir(parents=True)
        (tmp_path / name / "weights").write_bytes(b"w")
    (tmp_path / "two" / "onnx" / "model.onnx").write_bytes(b"never loaded")
    (tmp_path / "two" / ".gitattributes").write_text("x")
    one, two = (folder_fingerprint(tmp_path / name) for name in ("one", "two"))
    assert one == two
    (tmp_path / "two" / "weights").write_bytes(b"v")
    assert folder_fingerprint(tmp_path / "two") != one


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"FEDROUTER_CACHE": "/a/b"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/fedrouter"),
        ({"HOME": "/home/someone"}, "/home/someone/.cache/fedrouter"),
        ({"FEDROUTER_CACHE": "OFF"}, "None"),
    ],
)
def test_the_folder_is_the_users_choice(monkeypatch, settings, expected):
    for name in ("FEDROUTER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == expected


def test_off_writes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDROUTER_CACHE", "off")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert CachedEncoder().encode(["text"]).shape == (1, 384)
    assert not list(tmp_path.iterdir())


# Damage


def test_a_damaged_cache_is_set_aside_and_made_anew(cache, filled, caplog):
    shutil.copytree(filled, cache)
    path = only(cache)
    path.write_bytes(b"this is no database at all, not by a long way" * 100)
    embeddings = CachedEncoder().encode(TEXTS)
    assert embeddings.shape == (3, 384)
    assert "is damaged (file is not a database); it was set aside as" in caplog.text
    assert only(cache, "*.damaged").read_bytes().startswith(b"this is no database")
    caplog.clear()
    assert np.array_equal(CachedEncoder().encode(TEXTS), embeddings)
    assert not caplog.text


def test_pages_of_rubbish_inside_do_not_fail_a_run(cache, straight, caplog):
    texts = [f"Question {number}?" for number in range(300)]
    vectors = np.tile(straight.encode(TEXTS[:1]), (300, 1))
    store = Store(cache / "s.sqlite", "print")
    store.put(texts, vectors)
    content = bytearray((cache / "s.sqlite").read_bytes())
    content[4096:-4096] = os.urandom(len(content) - 8192)
    (cache / "s.sqlite").write_bytes(content)
    found = Store(cache / "s.sqlite", "print").get(texts)
    assert all(np.array_equal(vector, vectors[0]) for vector in found.values())
    store = Store(cache / "s.sqlite", "print")
    store.put(texts, vectors)
    assert caplog.text.count("WARNING") <= 2


def test_an_embedding_that_is_not_whole_is_encoded_again(cache, filled):
    shutil.copytree(filled, cache)
    encoder = CachedEncoder()
    expected = encoder.encode(TEXTS)
    for wrong in (b"", b"abc", b"\0" * 384 * 4, expected[0].tobytes()[4:], "text"):
        with sqlite3.connect(only(cache)) as database:
            database.execute("UPDATE embeddings SET vector = ?", (wrong,))
        database.close()
        assert encoder.encode(TEXTS) == pytest.approx(expected, abs=1e-6)


def test_a_cache_that_cannot_be_made_costs_one_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING):
        assert CachedEncoder().encode(TEXTS).shape == (3, 384)
    assert caplog.text.count("is not used") == 1


def test_a_cache_that_stays_locked_is_not_waited_for_forever(cache, monkeypatch, caplog):
    monkeypatch.setattr("fedrouter.encoders.cache.BUSY_SECONDS", 0.1)
    Store(cache / "s.sqlite", "p").put(["text"], np.eye(1, 4, dtype=np.float32))
    holder = sqlite3.connect(cache / "s.sqlite")
    holder.execute("BEGIN IMMEDIATE")
    store = Store(cache / "s.sqlite", "p")
    store.put(["other"], np.eye(1, 4, dtype=np.float32))
    assert "database is locked" in caplog.text
    holder.rollback()
    holder.close()
    assert Store(cache / "s.sqlite", "p").get(["text", "other"]).keys() == {"text"}


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_cache_that_another_process_creates_is_waited_for(cache, caplog, lock):
    """SQLite reports "locked" at once, without its timeout, when the switch to WAL meets another connection."""
    cache.mkdir(mode=0o700)
    creator = sqlite3.connect(cache / "s.sqlite", check_same_thread=False)
    creator.execute("CREATE TABLE other (x)")
    creator.execute(f"BEGIN {lock}")
    creator.execute("INSERT INTO other VALUES (1)")
    done = threading.Timer(0.5, creator.commit)
    done.start()
    Store(cache / "s.sqlite", "p").put(["text"], np.eye(1, 4, dtype=np.float32))
    done.join()
    creator.close()
    assert caplog.text == ""
    assert Store(cache / "s.sqlite", "p").get(["text"]).keys() == {"text"}


WRITER = """
import sys, numpy as np
from pathlib import Path
from fedrouter.encoders.cache import Store
store, own = Store(Path(sys.argv[1]), "print"), int(sys.argv[2])
for turn in range(40):
    texts = [f"{whose} {turn} {number}" for whose in (f"text {own}", "shared") for number in range(20)]
    store.put(texts, np.tile(np.eye(1, 16, dtype=np.float32), (40, 1)))
    assert len(store.get(texts)) == 40
"""


def test_processes_may_write_at_once(cache):
    path = cache / "shared.sqlite"
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(own)], stderr=subprocess.PIPE, text=True)
        for own in range(3)
    ]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "")
    store = Store(path, "print")
    texts = [f"text {own} {turn} {number}" for own in range(3) for turn in range(40) for number in range(20)]
    assert len(store.get(texts)) == len(texts)


def test_an_encoder_that_is_nowhere_is_named_and_leaves_no_cache(cache):
    assert locate("no-such-encoder") is None
    with pytest.raises(FedrouterError, match="'no-such-encoder' could not be loaded"):
        CachedEncoder("no-such-encoder").encode(["text"])
    assert not cache.exists()


def test_the_offline_encoder_is_found_without_loading_it():
    assert locate(OFFLINE) == locate("sentence-transformers/all-MiniLM-L6-v2") == offline_folder()
