"""Makes the tables of the encoder `static` that the package ships; prints their SHA-256 for `encoders/weights.py`.

Run it as `python scripts/make_static_table.py` with `wordllama==0.4.0.post1` installed (MIT). Its token vectors are
reduced to eight bits; its vocabulary is kept in order. The statistics of a text's shape are standardized with their
mean and standard deviation over the simulated prompts that the package ships: alone, and joined by 4 and by 16, as in
long prompts.
"""

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from fedrouter.data.simulator import FOLDER as WORLD
from fedrouter.data.simulator import PROMPTS
from fedrouter.encoders.shape import STATISTICS, Counts, statistics_of
from fedrouter.encoders.static import FOLDER, SHAPE, VECTORS
from fedrouter.encoders.weights import WORDLLAMA_FILES, WORDLLAMA_PACKAGE, verify_files, weights_digest

JOINED = (1, 4, 16)


def vectors(folder: Path) -> dict[str, np.ndarray]:
    """Token vectors in eight bits with a scale for each token, and the vocabulary, one piece a line."""
    weights, tokenizer = WORDLLAMA_FILES
    table = load_file(folder / weights)["embedding.weight"].astype(np.float32)
    scales = (np.abs(table).max(axis=1) / 127).astype(np.float16)
    vocabulary = json.loads((folder / tokenizer).read_text(encoding="utf-8"))["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    assert [vocabulary[piece] for piece in pieces] == list(range(len(table)))
    assert not any("\n" in piece for piece in pieces)
    return {
        "vectors": np.clip(np.rint(table / scales.astype(np.float32)[:, None]), -127, 127).astype(np.int8),
        "scales": scales,
        "pieces": np.frombuffer("\n".join(pieces).encode(), np.uint8),
    }


def constants(prompts: tuple[str, ...]) -> dict[str, np.ndarray]:
    texts = ["\n\n".join(prompts[start : start + size]) for size in JOINED for start in range(0, len(prompts), size)]
    found = np.array([statistics_of(Counts.of(text, len(text))) for text in texts])
    # Each length of text counts alike, although there are fewer long ones.
    weight = np.array([size / len(prompts) for size in JOINED for _ in range(0, len(prompts), size)]) / len(JOINED)
    center = np.where([statistic.centered for statistic in STATISTICS], weight @ found, 0.0)
    spread = np.sqrt(weight @ (found - center) ** 2)
    least = [statistic.least for statistic in STATISTICS]
    return {"center": center.astype(np.float32), "scale": np.maximum(spread, least).astype(np.float32)}


def tables() -> dict[str, bytes]:
    """The content of each file."""
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise SystemExit(f"expected {WORDLLAMA_PACKAGE} to be installed")
    folder = Path(found.origin).parent
    verify_files(folder, WORDLLAMA_FILES, WORDLLAMA_PACKAGE)
    prompts = tuple(json.loads((WORLD / PROMPTS).read_text(encoding="utf-8"))["prompt"])
    return {SHAPE: save(constants(prompts)), VECTORS: save(vectors(folder))}


def main() -> None:
    for name, content in tables().items():
        (FOLDER / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}")
    print(f"both: {weights_digest(FOLDER)}")


if __name__ == "__main__":
    main()
