"""Makes the simulated prompt set that the package ships, so that fedrouter can be tried without a download.

Run it from anywhere as `python scripts/make_simulated_prompts.py`. It writes the prompts with their tasks as JSON, and
their embeddings by the encoder `static` in half precision.
"""

import json
import random

import numpy as np
from safetensors.numpy import save_file

from fedrouter.data.simulator import EMBEDDINGS, FOLDER, PROMPTS
from fedrouter.encoders.static import StaticEncoder
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


def main() -> None:
    rows = generate(SEED)
    prompts, tasks, difficulties = zip(*rows, strict=True)
    columns = {"prompt": prompts, "task": tasks, "difficulty": np.array(difficulties, np.float32).tolist()}
    (FOLDER / PROMPTS).write_text(json.dumps(columns, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    embeddings = StaticEncoder().encode(prompts).astype(np.float16)
    save_file({"embeddings": embeddings}, FOLDER / EMBEDDINGS)
    print(f"{len(rows)} prompts in {len(FAMILIES)} families: {PROMPTS}, {EMBEDDINGS}")


if __name__ == "__main__":
    main()
