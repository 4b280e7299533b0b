"""`static` against all-MiniLM-L6-v2 in torch and as ONNX with 8-bit weights: time, start, memory, packages.

Writes docs/results/encoder.md. Run with `.venv/bin/python benchmarks/encoder.py`; `--part times` or another part
measures that alone and prints it. Each encoder is timed in a process of its own, on one thread, on the same texts; they
take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zlib
from importlib.metadata import requires
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedrouter.data.read import read
from fedrouter.encoders import OFFLINE
from fedrouter.encoders.static import static_encoder
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Embeddings, Evaluations
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.frontier import sweep

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / "docs" / "results"
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SET = "routerbench_subset"
LENGTHS = (20, 100, 1_500, 20_000)
TIMED = {20: 60, 100: 60, 1_500: 40, 20_000: 12}
"""Texts by length; each is timed alone, once."""
ROUNDS = 3
COMPARED = 300
"""Texts on which the two forms of MiniLM are compared."""
ENCODERS = {
    "`static`": ("", "from fedrouter.encoders.static import StaticEncoder as E"),
    "MiniLM, torch": (
        "encoder",
        "import torch; torch.set_num_threads(1); from fedrouter.encoders.sentence import SentenceEncoder as E",
    ),
    "MiniLM, ONNX in 8 bits": ("onnx", "from fedrouter.encoders.onnx import OnnxEncoder as E"),
}
"""The extra that an encoder needs, and how it is imported."""
PROGRAM = """
import json, re, sys, time
begun = time.perf_counter()
{encoder}
encode = E().encode
encode(["What is a cat?"])
loaded = time.perf_counter() - begun
texts, compared = json.load(sys.stdin)
def times(some):
    taken = []
    for text in some:
        begun = time.perf_counter()
        encode([text])
        taken.append((time.perf_counter() - begun) * 1000)
    return taken
found = {{"loaded": loaded, "times": {{length: times(some) for length, some in texts.items()}}}}
found["megabytes"] = int(re.findall(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[0]) / 1024
found["embeddings"] = encode(compared).tolist() if compared else []
print(json.dumps(found))
"""
FAMILIES_TRIED = ("kmeans", "bayes")
SCALED = (0.005, 0.05, 0.5)
"""λ times the most expensive model's mean cost, so that it weighs the same on every data set."""
NGRAMS = 1024
"""Queries of the client whose messages are attacked."""


def cut(texts: list[str]) -> dict[int, list[str]]:
    """Different texts of each length, cut from the data set's prompts one after another."""
    stream, place, found = "\n\n".join(texts), 0, {}
    for length, number in TIMED.items():
        found[length] = [stream[place + length * index :][:length] for index in range(number)]
        place += length * number
    return found


def timed(encoder: str, texts: dict[int, list[str]], compared: list[str]) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(encoder=encoder)],
        input=json.dumps([texts, compared]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout)


def packages(extra: str) -> set[str]:
    """Names of the packages that ``pip install fedrouter[extra]`` brings."""
    waiting, found = [f"fedrouter[{extra}]" if extra else "fedrouter"], set()
    seen = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        for wanted in requirement.extras or {""}:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                found.add(name)
                for text in requires(name) or []:
                    needed = Requirement(text)
                    if needed.marker is None or needed.marker.evaluate({"extra": wanted}):
                        waiting.append(text.partition(";")[0])
    return found


def times(evaluations: Evaluations) -> tuple[list[str], dict[str, list[dict]], list[str]]:
    """The table of times, all runs, and the texts on which encoders are compared."""
    texts = list(evaluations.text or ())
    compared = texts[:COMPARED]
    runs: dict[str, list[dict]] = {name: [] for name in ENCODERS}
    for round_ in range(ROUNDS):
        for name, found in runs.items():
            wanted = compared if round_ == 0 and name != "`static`" else []
            found.append(timed(ENCODERS[name][1], cut(texts), wanted))
            print(name, round(found[-1]["loaded"], 2), file=sys.stderr, flush=True)

    def typical(name: str, length: int) -> float:
        return median(value for run in runs[name] for value in run["times"][str(length)])

    core = packages("")
    lines = [
        f"| milliseconds per text of … characters | {' | '.join(f'{length:,}' for length in LENGTHS)} | ready in, s "
        "| resident, MB | packages |",
        f"|---|{'---|' * (len(LENGTHS) + 3)}",
    ]
    for name, (extra, _) in ENCODERS.items():
        cells = [f"{typical(name, length):.2f}" for length in LENGTHS]
        cells += [
            f"{median(run[key] for run in runs[name]):.{digits}f}" for key, digits in (("loaded", 2), ("megabytes", 0))
        ]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {'+' if extra else ''}{len(packages(extra) - core) if extra else 0} |"
        )
    faster = " / ".join(f"{typical('MiniLM, torch', length) / typical('`static`', length):.0f}" for length in LENGTHS)
    lines += ["", f"`static` takes 1/{faster} of the time of MiniLM in torch."]
    return lines, runs, compared


def both_minilms(evaluations: Evaluations, runs: dict[str, list[dict]]) -> list[str]:
    """How far the 8-bit weights are from the original ones, and what routers make of that."""
    torch, onnx = (np.array(runs[name][0]["embeddings"], np.float32) for name in list(ENCODERS)[1:])
    cosine = (torch * onnx).sum(axis=1)
    others = torch @ torch.T - 2 * np.eye(COMPARED)
    rest = np.arange(COMPARED, evaluations.queries)
    truth = evaluations.of_queries(np.arange(COMPARED)).grid()
    most_expensive = float(evaluations.grid().cost.mean(axis=0).max())
    lines = [
        f"Cosine between the embeddings of the same text by torch and by ONNX, {COMPARED} texts: mean "
        f"{cosine.mean():.5f}, minimum {cosine.min():.5f}. Between a text and the nearest other one: median "
        f"{np.median(others.max(axis=1)):.3f}. Routers learned from other queries with torch's embeddings, asked with "
        f"those of each: share of equal choices at λ = {', '.join(map(str, SCALED))} over the most expensive model's "
        "mean cost, and `aiq`.",
        "",
        "| router | equal choices | torch | ONNX | difference |",
        "|---|---|---|---|---|",
    ]
    for family in FAMILIES_TRIED:
        federation = LocalFederation({"all": evaluations.of_queries(rest)})
        router = FAMILIES[family].learn(federation, evaluations.pool, FAMILIES[family].settings().single_client(), 0)
        ours, theirs = router.estimate(torch), router.estimate(onnx)
        equal = [np.mean(ours.choose(each / most_expensive) == theirs.choose(each / most_expensive)) for each in SCALED]
        areas = [sweep(each, truth).measures.aiq for each in (ours, theirs)]
        shown = " / ".join(f"{share:.1%}" for share in equal)
        lines.append(f"| `{family}` | {shown} | {areas[0]:.4f} | {areas[1]:.4f} | {areas[1] - areas[0]:+.4f} |")
    return lines


def trigrams(texts: list[str]) -> tuple[Embeddings, list[set[int]]]:
    """Hashed character trigrams ``(n, 1024)`` of length one, as an encoder could add them; and those of each text."""
    found, sets = np.zeros((len(texts), NGRAMS), np.float32), []
    for row, text in enumerate(texts):
        words = text[-4096:].lower()
        hashes = [
            zlib.crc32(words[place : place + 3].encode(errors="replace")) % NGRAMS for place in range(len(words) - 2)
        ]
        np.add.at(found[row], hashes, 1.0)
        sets.append(set(hashes))
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9), sets


def ngrams(texts: list[str]) -> list[str]:
    """What a centroid of a few texts shows of their words, for trigrams and for `static`.

    The attacker knows a list of words and guesses which of them occur in the group. With trigrams a word can occur only
    if all of its trigrams do; with `static` it ranks the words by the cosine of their own embedding with the centroid.
    """
    draw = np.random.default_rng(0)
    words = sorted({word.lower() for text in texts for word in text.split() if word.isalpha() and len(word) >= 6})
    candidates = [words[place] for place in draw.permutation(len(words))[:2000]]
    _, word_sets = trigrams(candidates)
    encoder = static_encoder()
    width = encoder._width
    word_vectors = encoder.encode(candidates)[:, :width]
    word_vectors /= np.linalg.norm(word_vectors, axis=1, keepdims=True)
    lines = [
        "| texts in the sum | trigrams: area, words found at 1% false ones | `static`: the same |",
        "|---|---|---|",
    ]
    for size in (5, 10, 20):
        scores: dict[str, list[tuple[float, float]]] = {"trigrams": [], "static": []}
        for _ in range(20):
            group = [texts[row] for row in draw.permutation(len(texts))[:size]]
            said = {word for text in group for word in text.lower().split()}
            inside = np.array([word in said for word in candidates])
            if not inside.any():
                continue
            mean = trigrams(group)[0].mean(axis=0)
            by_trigram = np.array([min(mean[list(some)], default=0.0) for some in word_sets])
            by_static = word_vectors @ encoder.encode(group)[:, :width].mean(axis=0)
            for name, score in (("trigrams", by_trigram), ("static", by_static)):
                scores[name].append(_found(score[inside], score[~inside]))
        cells = [
            f"{np.mean([area for area, _ in found]):.2f}, {np.mean([share for _, share in found]):.0%}"
            for found in scores.values()
        ]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return lines


def _found(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Area under the ROC curve, and the share of members above 99% of the others."""
    ranks = np.argsort(np.argsort(np.concatenate([members, others])))
    area = (ranks[: len(members)].mean() - (len(members) - 1) / 2) / len(others)
    return float(area), float((members > np.quantile(others, 0.99)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    path = DATA / f"{SET}.parquet"
    evaluations = read(path, encoder=OFFLINE).evaluations
    texts = list(evaluations.text or ())
    load = os.getloadavg()[0]
    parts = {
        "times": lambda: times(evaluations)[0],
        "ngrams": lambda: ngrams(texts),
    }
    parser.add_argument("--part", choices=parts, help="print this part alone")
    part = parser.parse_args().part
    if part is not None:
        print("\n".join(parts[part]()))
        return
    table, runs, _ = times(evaluations)
    lines = [
        "# Encoders",
        "",
        "    .venv/bin/python benchmarks/encoder.py",
        "",
        f"One thread of a shared machine; texts cut from the prompts of {SET}, each encoded alone and once; medians "
        f"over {ROUNDS} rounds, each encoder in its own process, alternating. Ready: imports, weights and the first "
        f"text. Packages: beyond those of the core. Load average at the start: {load:.1f} on {os.cpu_count()} cores.",
        "",
        *table,
        "",
        "## MiniLM in 8 bits",
        "",
        *both_minilms(evaluations, runs),
        "",
        "## Character n-grams",
        "",
        f"{NGRAMS:,} hashed character trigrams are not part of `static`. What a centroid of a few texts would show of "
        "the words in them, to an attacker who has a list of 2,000 words:",
        "",
        *ngrams(texts),
    ]
    (FOLDER / "encoder.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
