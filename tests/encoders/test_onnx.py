"""The ONNX encoder stands for the torch one: the same embeddings to within what a router can tell apart."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fedrouter.data.simulator import simulated_world
from fedrouter.encoders.onnx import OnnxEncoder
from fedrouter.encoders.sentence import SentenceEncoder
from fedrouter.errors import FedrouterError

pytest.importorskip("onnxruntime")
LONG = "\n\n".join(f"Question {index}: what is {index} and {index}, in words?" for index in range(100))
ODD = ["", "?", "Wörter, слова, 単語 🙂", "x" * 5000, "word " * 5000, LONG, "[CLS] [SEP] [PAD]", "\x00"]


@pytest.fixture(scope="module")
def onnx():
    return OnnxEncoder()


@pytest.fixture(scope="module")
def torch_encoder():
    return SentenceEncoder()


@pytest.mark.parametrize(("texts", "least"), [(simulated_world().evaluations.text[::100], 0.999), (ODD, 0.99)])
def test_embeddings_agree_with_those_of_torch(onnx, torch_encoder, texts, least):
    ours, theirs = onnx.encode(texts), torch_encoder.encode(texts)
    assert ours.dtype == np.float32
    assert np.linalg.norm(ours, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert (ours * theirs).sum(axis=1).min() > least


def test_an_embedding_does_not_depend_on_its_neighbors(onnx):
    texts = ["What is a cat?", LONG, "Add 2 and 3."]
    together = onnx.encode(texts)
    assert np.array_equal(together, np.concatenate([onnx.encode([text]) for text in texts]))


def test_both_backends_are_one_encoder(onnx, torch_encoder):
    assert onnx.identity() == torch_encoder.identity()
    assert onnx.encode(["text"]).shape == (1, onnx.identity().dimension)


def test_another_encoder_is_refused_by_name():
    with pytest.raises(FedrouterError, match=r"all-mpnet-base-v2.*only"):
        OnnxEncoder("all-mpnet-base-v2")


def test_torch_is_not_imported():
    program = (
        "import sys, json; from fedrouter.encoders.onnx import OnnxEncoder;"
        "v = OnnxEncoder().encode(['What is a cat?']); print(json.dumps(['torch' in sys.modules, v.shape]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, [1, 384]]
