import numpy as np
import pytest

from fedrouter.encoders import OFFLINE, EncoderIdentity, column_stem
from fedrouter.encoders.location import locate, offline_folder
from fedrouter.encoders.sentence import SentenceEncoder
from fedrouter.encoders.weights import MINILM_WEIGHTS, file_sha256
from fedrouter.encoders.window import fit_window
from fedrouter.errors import FedrouterError


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder()


def test_the_offline_encoder_needs_no_hub(encoder):
    assert encoder.identity() == EncoderIdentity(OFFLINE, 384, True, f"sha256:{MINILM_WEIGHTS}")
    embeddings = encoder.encode(["A cat sat on the mat.", "A kitten rested on a rug.", "Quarterly tax filing rules"])
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(1, abs=1e-5)
    assert embeddings[0] @ embeddings[1] > embeddings[0] @ embeddings[2] + 0.2


def test_texts_come_back_in_their_order_whatever_their_length(encoder):
    texts = ["a " * length for length in (50, 1, 20, 5)]
    together, apart = encoder.encode(texts), np.concatenate([encoder.encode([text]) for text in texts])
    assert together == pytest.approx(apart, abs=1e-5)


def test_a_long_prompt_keeps_its_last_ask(encoder):
    ask = "Which metal is liquid at room temperature?"
    examples = "\n\n".join(
        f"Question {number}: what is {number} plus {number}?\nAnswer: {2 * number}" for number in range(200)
    )
    long, short = encoder.encode([f"{examples}\n\n{ask}", ask])
    first, _ = encoder.encode([examples, ask])
    assert long @ short > first @ short
    tokenizer, window = encoder.model.tokenizer, encoder.model.max_seq_length
    kept = fit_window(f"{examples}\n\n{ask}", tokenizer, window)
    assert kept.endswith(ask)
    assert len(tokenizer.encode(kept)) <= window


def test_a_single_endless_paragraph_keeps_its_end(encoder):
    tokenizer = encoder.model.tokenizer
    kept = fit_window("alpha " * 5000 + "omega", tokenizer, 64)
    assert kept.endswith("omega")
    assert len(tokenizer.encode(kept)) <= 64


def test_a_short_text_is_left_alone(encoder):
    assert fit_window("Hello", encoder.model.tokenizer, 256) == "Hello"


@pytest.fixture(scope="module")
def saved(encoder, tmp_path_factory):
    """The encoder as sentence-transformers itself saves one, under the name of the offline encoder."""
    folder = tmp_path_factory.mktemp("mine") / OFFLINE
    encoder.model.save(str(folder))
    return folder


def test_any_saved_folder_loads(encoder, saved):
    from_folder = SentenceEncoder(str(saved))
    weights = f"sha256:{file_sha256(saved / 'model.safetensors')}"
    assert from_folder.identity() == EncoderIdentity(str(saved), 384, True, weights)
    assert from_folder.encode(["same"]) == pytest.approx(encoder.encode(["same"]), abs=1e-6)


def test_a_text_beyond_a_folders_own_window_keeps_its_last_ask(saved, tmp_path):
    import json
    import shutil

    folder = shutil.copytree(saved, tmp_path / "narrow")
    settings = folder / "sentence_bert_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"max_seq_length": 32}))
    narrow = SentenceEncoder(str(folder))
    ask = "Which metal is liquid at room temperature?"
    long, short = narrow.encode(["Some words about cooking rice. " * 10 + "\n\n" + ask, ask])
    assert narrow.model.max_seq_length == 32
    assert long == pytest.approx(short, abs=1e-5)


def test_a_folder_counts_over_the_installed_encoder_of_the_same_name(saved):
    assert locate(str(saved)) == saved
    assert locate(OFFLINE) == offline_folder()


def test_a_folder_that_is_no_encoder_says_what_one_has(tmp_path):
    with pytest.raises(FedrouterError, match=r"the folder exists but does not load .*modules\.json, config\.json"):
        SentenceEncoder(str(tmp_path))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FedrouterError, match=r"absent' could not be loaded .*: expected a folder, 'static'"):
        SentenceEncoder(str(tmp_path / "absent"))


def test_an_encoder_that_is_nowhere_is_named():
    with pytest.raises(FedrouterError, match="'no-such-encoder' could not be loaded"):
        SentenceEncoder("no-such-encoder")


def test_a_column_is_named_after_its_encoder():
    assert column_stem("all-mpnet-base-v2") == "all_mpnet_base_v2"
    assert column_stem(OFFLINE) == "all_minilm_l6_v2"
