"""Writes src/fedrouter/data/model_abilities.csv from the published scores of leaderboards.

    python scripts/make_model_abilities.py --llm-stats FOLDER --aider FILE… --scores SOURCE=FILE… --prices LIST

--llm-stats  a checkout of github.com/JonathanChavezTamales/llm-leaderboard
--aider      `aider/website/_data/*_leaderboard.yml` of github.com/Aider-AI/aider; each file is one benchmark
--scores     any other leaderboard, under its name: a CSV with `model`, `benchmark`, `score`, or with `model` and
             one column a benchmark: so arena-hard-auto, ZeroEval, WildBench, EvalPlus, MMLU-Pro, InternLM,
             simple-evals, LLMRouter and DeepSeek-LLM come in once their tables are saved as CSV
--prices     `model_prices_and_context_window_backup.json` of LiteLLM's package
--out        another file than the package's

Scores are shares or percent. Spellings of a model that `fedrouter.prior` does not know become a model of their own, so
look at new rows before you commit them, and keep `model_abilities.NOTICE` in step with the sources.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from fedrouter.prior import Abilities, abilities, short_name

TABLE = Path(__file__).parents[1] / "src" / "fedrouter" / "data" / "model_abilities.csv"
COLUMNS = ("model", "aliases", "ability", "standard_error", "benchmarks", "sources", "input", "output", "context")
FEWEST_MODELS = 5
"""Benchmarks with fewer models say too little of how hard they are."""
ROUNDS = 200
SPREAD = {"ability": 1.0, "level": 2.0, "loading": 0.3}
"""Prior standard deviations of a model's ability, a benchmark's level, and its loading around 1."""

Score = tuple[str, str, str, float]
"""Source, benchmark, model as the source spells it, score."""


def llm_stats(folder: Path) -> Iterator[Score]:
    for path in sorted(folder.glob("data/organizations/*/models/*/benchmarks.json")):
        for entry in json.loads(path.read_text()):
            if entry["normalized_score"] is not None:
                yield "llm-leaderboard", entry["benchmark_id"], entry["model_id"], float(entry["normalized_score"])


def aider(path: Path) -> Iterator[Score]:
    for entry in yaml.safe_load(path.read_text()):
        if " + " not in entry["model"]:  # two models together
            yield "aider", path.stem, entry["model"], float(entry.get("pass_rate_2", entry.get("pass_rate_1")))


def leaderboard(source: str, path: Path) -> Iterator[Score]:
    with path.open(newline="") as file:
        for entry in csv.DictReader(file):
            if "benchmark" in entry:
                yield source, entry["benchmark"], entry["model"], float(entry["score"])
                continue
            for column, text in entry.items():
                if re.fullmatch(r"\d+(\.\d+)?%?", text or ""):
                    yield source, column, entry["model"], float(text.rstrip("%"))


def named(model: str, known: Abilities) -> str:
    """One name for all spellings of a model: the table's own, or its parts without what does not tell models apart."""
    row = known.find(model)
    return row.model if row else short_name(model)


def shares(scores: list[Score]) -> list[Score]:
    """Benchmarks in percent as shares; what is neither (Elo, lengths) is left out."""
    most: dict[tuple[str, str], float] = defaultdict(float)
    for source, benchmark, _, score in scores:
        most[source, benchmark] = max(most[source, benchmark], score)
    scale = {key: 1.0 if top <= 1 else 100.0 for key, top in most.items() if top <= 100}
    return [(s, b, m, score / scale[s, b]) for s, b, m, score in scores if (s, b) in scale and score >= 0]


def fit(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ability (M,) and its standard error from shares (M, B) with NaN: logit = level + loading · ability + noise.

    Maximum a posteriori by alternating least squares; the mean loading is 1, so that abilities are logits on an average
    benchmark.
    """
    seen = ~np.isnan(table)
    logit = np.where(seen, table, 0.5).clip(0.01, 0.99)
    logit = np.log(logit / (1 - logit))
    ability, noise = np.zeros(len(table)), 0.5
    level, loading = np.zeros(table.shape[1]), np.ones(table.shape[1])
    for _ in range(ROUNDS):
        precision = (seen * loading**2).sum(1) / noise + SPREAD["ability"] ** -2
        ability = (seen * loading * (logit - level)).sum(1) / noise / precision
        ability -= ability.mean()
        rest = (seen * (logit - ability[:, None] * loading)).sum(0) / noise
        level = rest / (seen.sum(0) / noise + SPREAD["level"] ** -2)
        slope = (seen * ability[:, None] * (logit - level)).sum(0) / noise + SPREAD["loading"] ** -2
        loading = slope / ((seen * ability[:, None] ** 2).sum(0) / noise + SPREAD["loading"] ** -2)
        loading /= loading.mean()
        residual = seen * (logit - level - ability[:, None] * loading)
        noise = float((residual**2).sum() / seen.sum())
    return ability, np.sqrt(1 / precision)


def price_of(entries: list[dict]) -> tuple[str, str, str]:
    """Median input and output price per million tokens, and the context, of a model's entries in LiteLLM's list."""
    if not entries:
        return "", "", ""
    per_token = ([entry[f"{way}_cost_per_token"] for entry in entries] for way in ("input", "output"))
    context = max(entry.get("max_input_tokens") or 0 for entry in entries)
    return (*(f"{1e6 * float(np.median(prices)):.6g}" for prices in per_token), str(context or ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llm-stats", type=Path)
    parser.add_argument("--aider", type=Path, nargs="*", default=[])
    parser.add_argument("--scores", nargs="*", default=[], metavar="SOURCE=FILE")
    parser.add_argument("--prices", type=Path)
    parser.add_argument("--out", type=Path, default=TABLE)
    given = parser.parse_args()

    known, scores = abilities(), list[Score]()
    if given.llm_stats:
        scores += llm_stats(given.llm_stats)
    for path in given.aider:
        scores += aider(path)
    for text in given.scores:
        source, _, path = text.partition("=")
        scores += leaderboard(source, Path(path))

    # Dates and efforts of a model are one model: the mean of its scores on a benchmark.
    cells, spellings, sources = defaultdict(list), defaultdict(set), defaultdict(set)
    for source, benchmark, spelling, score in shares(scores):
        model = named(spelling, known)
        cells[model, (source, benchmark)].append(score)
        spellings[model].add(spelling.lower())
        sources[model].add(source)
    counts = defaultdict(int)
    for _, benchmark in cells:
        counts[benchmark] += 1
    cells = {key: float(np.mean(found)) for key, found in cells.items() if counts[key[1]] >= FEWEST_MODELS}
    models, benchmarks = sorted({model for model, _ in cells}), sorted({benchmark for _, benchmark in cells})
    if "gpt-4o" not in models:
        parser.error("no scores of gpt-4o, whose ability is 0 by definition")
    table = np.full((len(models), len(benchmarks)), np.nan)
    for (model, benchmark), score in cells.items():
        table[models.index(model), benchmarks.index(benchmark)] = score
    ability, error = fit(table)
    ability -= ability[models.index("gpt-4o")]

    rows, listed = {row.model: row for row in known.rows}, defaultdict(list)
    for name, entry in json.loads(given.prices.read_text()).items() if given.prices else ():
        if entry.get("input_cost_per_token") and entry.get("output_cost_per_token"):
            listed[named(name, known)].append(entry)
    with given.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for place in np.argsort(-ability):
            model = models[place]
            aliases = (spellings[model] | {*(rows[model].aliases if model in rows else ())}) - {model}
            numbers = (f"{ability[place]:.2f}", f"{error[place]:.2f}", int((~np.isnan(table[place])).sum()))
            origin, price = "+".join(sorted(sources[model])), price_of(listed[model])
            writer.writerow((model, "|".join(sorted(aliases)), *numbers, origin, *price))
    print(f"{len(cells)} scores of {len(models)} models on {len(benchmarks)} benchmarks → {given.out}")


if __name__ == "__main__":
    main()
