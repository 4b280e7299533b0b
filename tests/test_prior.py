"""What is publicly known of models: names, stand-ins for unknown models, and what guesses are worth on real data."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import PROJECT
from fedrouter.data.prices import TokenPrice, price_table
from fedrouter.pool import Model, ModelPool
from fedrouter.prior import (
    LEVEL_ERROR,
    OTHER_ERROR,
    QUALITY_ERROR,
    TABLE_ERROR,
    abilities,
    expected_accuracy,
    guess,
    guesses,
    read_abilities,
)

SPELLINGS = {
    "gpt-4o": "openai/gpt-4o-2024-08-06 openai:chat:gpt-4o azure/eu/gpt-4o chatgpt-4o-latest GPT-4o",
    "gpt-4o-mini": "gpt-4o-mini-2024-07-18 GPT-4o_mini",
    "gpt-4-turbo": "gpt-4-1106-preview gpt4_1106_preview gpt-4-0125-preview gpt-4-turbo-2024-04-09",
    "gpt-4": "gpt-4-0613 gpt-4-32k-0613",
    "gpt-3.5-turbo": "gpt-3.5-turbo-1106 azure/gpt-35-turbo gpt-3.5-turbo-16k",
    "gpt-5": "gpt-5-2025-08-07 gpt-5-chat-latest openrouter/openai/gpt-5",
    "gpt-oss-120b": "openai/gpt-oss-120b gpt-oss-120b-maas",
    "o1-preview": "o1-preview-2024-09-12",
    "o1": "o1-2024-12-17",
    "o3-mini": "o3-mini-2025-01-31-high",
    "claude-sonnet-3.5": "us.anthropic.claude-3-5-sonnet-20241022-v2:0 anthropic/claude-3.5-sonnet "
    "vertex_ai/claude-3-5-sonnet@20240620 claude-3-5-sonnet-latest",
    "claude-sonnet-3.7": "bedrock/us.anthropic.claude-3-7-sonnet-20250219-v1:0 claude-3.7-sonnet:thinking",
    "claude-sonnet-4.5": "claude-sonnet-4-5-20250929 anthropic/claude-sonnet-4.5",
    "claude-haiku-3": "claude-3-haiku-20240307 anthropic.claude-3-haiku-20240307-v1:0",
    "claude-2.1": "anthropic.claude-v2:1 claude-v2.1",
    "claude-2": "claude-v2",
    "claude-instant-1": "claude-instant-v1",
    "gemini-1.5-pro": "gemini-1.5-pro-002 gemini/gemini-1.5-pro-latest google/gemini-pro-1.5",
    "gemini-2.5-pro": "gemini-2.5-pro-preview-05-06 google/gemini-2.5-pro",
    "gemini-2.5-flash": "gemini-2.5-flash-preview-04-17",
    "gemini-2.0-flash": "gemini/gemini-2.0-flash-001",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B-Instruct-Turbo accounts/fireworks/models/llama-v3p1-70b-instruct "
    "meta.llama3-1-70b-instruct-v1:0 llama3.1:70b",
    "llama-3.1-8b": "groq/llama-3.1-8b-instant llama3.1:8b-instruct-q4_K_M hf.co/bartowski/Llama-3.1-8B-Instruct-GGUF",
    "llama-3.3-70b": "openrouter/meta-llama/llama-3.3-70b-instruct:free llama-3.3-70b-versatile",
    "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
    "llama-2-70b": "meta/llama-2-70b-chat meta-llama/Llama-2-70b-chat-hf",
    "llama-3-70b": "llama3-70b-8192",
    "mistral-7b": "mistralai/mistral-7b-chat mistralai/Mistral-7B-Instruct-v0.1",
    "mistral-7b-v0.2": "mistralai/Mistral-7B-Instruct-v0.2 mistral.mistral-7b-instruct-v0:2",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-Instruct-v0.1 mistralai/mixtral-8x7b-chat",
    "mistral-large-2407": "mistral.mistral-large-2407-v1:0 mistral-large@2407",
    "qwen-2.5-72b": "Qwen/Qwen2.5-72B-Instruct qwen2.5-72b-instruct-turbo",
    "qwen-2.5-7b": "ollama/qwen2.5:7b",
    "qwen-2.5-coder-32b": "Qwen2.5-Coder-32B-Instruct",
    "qwen-3-235b-a22b-2507": "Qwen/Qwen3-235B-A22B-Instruct-2507",
    "gemma-2-9b": "google/gemma-2-9b-it gemma2:9b",
    "phi-3-mini": "microsoft/Phi-3-mini-4k-instruct phi-3-mini-128k-instruct",
    "command-r-plus": "cohere.command-r-plus-v1:0 command-r-plus-08-2024 CohereForAI/c4ai-command-r-plus",
    "deepseek-v3.2": "deepseek-chat deepseek-reasoner deepseek-v3.2-exp",
    "deepseek-v3-0324": "deepseek-ai/DeepSeek-V3-0324",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-coder-v2": "deepseek-v2-coder-0724 DeepSeek-Coder-V2-Instruct",
    "grok-4": "x-ai/grok-4-0709",
    "grok-4-fast": "xai/grok-4-fast-reasoning",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "nova-pro": "amazon.nova-pro-v1:0 us.amazon.nova-pro-v1:0",
    "yi-34b": "zero-one-ai/Yi-34B-Chat 01-ai/Yi-34B-Chat",
    "wizardlm-2-8x22b": "alpindale/WizardLM-2-8x22B",
}
WITH_SPACES = {
    "DeepSeek R1 (0528)": "deepseek-r1-0528",
    "Gemini 2.5 Pro Preview 05-06": "gemini-2.5-pro",
    "claude-opus-4-20250514 (32k thinking)": "claude-opus-4",
    "Claude 3.5 Haiku": "claude-haiku-3.5",
    "GPT-4.1 mini": "gpt-4.1-mini",
}
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
OWN_SOURCE = {"mmlu_pro": "mmlu-pro", "llmrouter_mix": "llmrouter"}
"""What the table has from the same project as a data set."""
SHARES = (0.05, 0.1, 0.25, 0.5)
"""Fixed λ: what the most expensive model's mean cost weighs, in accuracy."""


@pytest.mark.parametrize(
    ("spelling", "model"),
    [(one, model) for model, text in SPELLINGS.items() for one in text.split()] + list(WITH_SPACES.items()),
)
def test_one_model_is_found_under_the_names_that_providers_clouds_and_leaderboards_use(spelling, model):
    assert abilities().find(spelling).model == model


def test_every_name_and_alias_of_the_table_finds_its_own_row():
    rows = abilities().rows
    assert len(rows) == 241
    wrong = [name for row in rows for name in (row.model, *row.aliases) if abilities().find(name) is not row]
    assert not wrong


@pytest.mark.parametrize(
    "name", ["", "local", "my-model", "gpt", "gpt-6", "gpt-4o-audio", "llama-3.1-7b", "qwen-2.5", "claude-opus-5-5"]
)
def test_other_models_are_not_taken_for_one_of_the_table(name):
    assert abilities().find(name) is None


def test_a_model_of_the_table_has_its_accuracy_by_the_curve():
    found = guess("gpt-4o")
    assert found.accuracy == pytest.approx(1 / (1 + math.exp(-1.3)))
    assert (found.error, found.source) == (TABLE_ERROR, "table")
    assert found.price == price_table().models["gpt-4o"].price
    assert guess("gpt-5").accuracy > guess("gpt-5-mini").accuracy > guess("gpt-4o").accuracy > guess("gpt-4").accuracy


def ability(name):
    return abilities().find(name).ability


@pytest.mark.parametrize(
    ("unknown", "relative", "step"),
    [
        ("gpt-5.1-mini", "gpt-5-mini", 0.28 + 0.1 * 0.86),
        ("anthropic/claude-opus-5-5", "claude-opus-4.1", 0.28 + 0.86),  # at most one version
        ("claude-1", "claude-2", -0.28 - 0.86),
        ("mistral-large-2512", "mistral-large-2411", 0.28 + 0.86),  # months are versions
        ("codestral-2507", "codestral-2501", 0.28 + 0.5 * 0.86),
        ("gemini-3-pro-preview", "gemini-2.5-pro", 0.28 + 0.5 * 0.86),
        ("grok-4.1-fast", "grok-4-fast", 0.28 + 0.1 * 0.86),
        ("mistral-large-latest", "mistral-large-2411", 0),
    ],
)
def test_the_nearest_version_of_the_same_tier_stands_in(unknown, relative, step):
    found = guess(unknown)
    assert (found.source, found.error) == (f"like {relative}", OTHER_ERROR)
    assert found.accuracy == pytest.approx(expected_accuracy(ability(relative) + step))


@pytest.mark.parametrize(
    ("unknown", "base"),
    [
        ("dolphin-2.9-llama-3-8b", "llama-3-8b"),
        ("cognitivecomputations/dolphin-2.9.1-qwen-2-72b", "qwen-2-72b"),
        ("my-gpt-4o-mini-tuned", "gpt-4o-mini"),
        ("ft-mixtral-8x22b-sql", "mixtral-8x22b"),
    ],
)
def test_a_fine_tune_that_names_its_base_is_like_its_base(unknown, base):
    found = guess(unknown)
    assert (found.source, found.error) == (f"like {base}", OTHER_ERROR)
    assert found.accuracy == pytest.approx(expected_accuracy(ability(base)))


def test_of_the_same_line_the_nearest_in_version_and_price_stands_in():
    sol = TokenPrice(1.25, 10)
    assert guess("gpt-6-sol", sol).source == "like gpt-5"
    assert guess("gpt-6-sol", TokenPrice(0.05, 0.4)).source == "like gpt-5-nano"
    expected = expected_accuracy(ability("gpt-5") + 0.28 + 0.86)
    assert guess("gpt-6-sol", sol).accuracy == pytest.approx(expected)
    twice = expected_accuracy(ability("gpt-5") + 0.28 + 0.86 + 0.30 * math.log10(2))
    assert guess("gpt-6-sol", TokenPrice(2.5, 20)).accuracy == pytest.approx(twice)
    assert guess("gpt-9-sol", sol).source == "like gpt-5"


def test_of_the_same_line_sizes_count_where_both_are_known():
    found = guess("meta-llama/Llama-2-13b-chat-hf")
    assert found.source == "like llama-2-7b"
    assert found.accuracy == pytest.approx(expected_accuracy(ability("llama-2-7b") + math.log10(13 / 7)))


@pytest.mark.parametrize(
    ("name", "price", "expected"),
    [
        ("atlas", None, -1.07 + 0.46 - 0.35 - 0.07),
        ("atlas", TokenPrice(0, 0), -1.07 + 0.46 - 0.35 - 0.07),
        ("atlas", TokenPrice(5, 15), -1.07 + 0.46 + 0.36 - 0.07),
        ("atlas-large", TokenPrice(5, 15), -1.07 + 0.46 + 0.36 + 0.06 - 0.07),
        ("atlas-mini", TokenPrice(5, 15), -1.07 + 0.46 + 0.36 - 0.08 - 0.07),
        ("atlas-coder", TokenPrice(5, 15), -1.07 + 0.46 + 0.36 + 0.23 - 0.07),
        ("atlas-32b", TokenPrice(1, 1), -1.07 + 0.23 * 0.5 - 0.07),
        ("atlas-256b-a16b", TokenPrice(1, 1), -1.07 + 0.23 * 1.5 - 0.07),
        ("atlas-2025-03-01", TokenPrice(1, 1), -1.07 + 0.46 + 1.04),
    ],
)
def test_a_model_without_relatives_is_guessed_by_price_size_words_and_year_less_a_standard_error(name, price, expected):
    found = guess(name, price)
    assert (found.source, found.error) == ("price and size", OTHER_ERROR)
    assert found.accuracy == pytest.approx(expected_accuracy(expected - 0.65))


def test_what_the_user_says_takes_precedence():
    found = guess("gpt-4o", TokenPrice(1, 2), quality=0.55)
    assert (found.accuracy, found.error, found.source) == (0.55, QUALITY_ERROR, "quality")
    assert found.price == TokenPrice(1, 2)


NAMES = st.one_of(
    st.text(), st.from_regex(r"[a-z]{0,6}[-_/:.@ ]?(v|a)?[0-9]{0,3}[.x]?[0-9]{0,400}(b|k|e)?[-a-z0-9]{0,9}")
)


@given(NAMES, st.one_of(st.none(), st.builds(TokenPrice, st.floats(0, 1e6), st.floats(0, 1e6))))
def test_any_name_and_price_has_a_guess(name, price):
    found = guess(name, price)
    assert 0 <= found.accuracy <= 1
    assert found.error in (TABLE_ERROR, OTHER_ERROR)


def test_a_pool_has_its_guesses_in_order_and_costs_by_price_and_tokens():
    pool = ModelPool([Model("gpt-4o", 1.0, 2.0), "claude-haiku-4-5", "nobody-knows"])
    found = guesses(pool, {"nobody-knows": 0.4})
    assert found.sources == ("table", "table", "quality")
    np.testing.assert_allclose(found.accuracy, [guess("gpt-4o").accuracy, guess("claude-haiku-4-5").accuracy, 0.4])
    np.testing.assert_allclose(found.error, [TABLE_ERROR, TABLE_ERROR, QUALITY_ERROR])
    listed = price_table().models["claude-haiku-4-5"].price
    np.testing.assert_allclose(found.cost(1000, 100), [0.0012, listed.cost(1000, 100), np.nan])


# What the guesses are worth --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(real_data):
    """Of each data set: its models, mean accuracy and mean cost (M,), and the table without what is its own."""
    parquet = pytest.importorskip("pyarrow.parquet")
    found = {}
    for name in SETS:
        file = parquet.ParquetFile(real_data / f"{name}.parquet")
        models = [c.removesuffix("|total_cost") for c in file.schema_arrow.names if c.endswith("|total_cost")]
        table = file.read(columns=[*models, *(f"{model}|total_cost" for model in models)])
        accuracy = np.array([np.nanmean(table[model].to_numpy()) for model in models])
        cost = np.array([np.nanmean(table[f"{model}|total_cost"].to_numpy()) for model in models])
        own = [row.model for row in abilities().rows if row.sources == {OWN_SOURCE.get(name)}]
        found[name] = models, accuracy, cost, abilities().without(own)
    return found


def guessed(models, cost, table, unknown=False):
    """Guesses for the models of a data set; ``unknown``: as if each were not in the table, under any name."""
    found = []
    for model, dollars in zip(models, cost, strict=True):
        known = table
        while unknown and (row := known.find(model)):
            known = known.without([row.model])
        found.append(known.guess(model, TokenPrice(1000 * dollars, 1000 * dollars)))  # of a thousand tokens
    return found


def coverage(misses, error):
    return {z: float(np.mean(np.abs(misses) <= z * error)) for z in (0.674, 1.282, 1.96)}


def test_standard_errors_cover_the_accuracies_of_the_four_data_sets(measured):
    """Around the level of each data set, which `LEVEL_ERROR` is for; measured 87/93/100% and 65/94/100%."""
    table, other, levels = [], [], []
    for models, accuracy, cost, rows in measured.values():
        found = guessed(models, cost, rows)
        misses = accuracy - [one.accuracy for one in found]
        levels.append(misses.mean())
        table += [miss - levels[-1] for miss, one in zip(misses, found, strict=True) if one.error == TABLE_ERROR]
        left_out = guessed(models, cost, rows, unknown=True)
        other += list(accuracy - levels[-1] - [one.accuracy for one in left_out])
    assert len(table) >= 40
    assert len(other) == 52
    for misses, error in ((table, TABLE_ERROR), (other, OTHER_ERROR)):
        covered = coverage(misses, error)
        assert covered[0.674] >= 0.5
        assert covered[1.282] >= 0.8
        assert covered[1.96] >= 0.93
    assert np.sqrt(np.mean(np.square(levels))) == pytest.approx(LEVEL_ERROR, abs=0.03)


@pytest.mark.parametrize("unknown", [False, True])
def test_the_first_choice_loses_less_than_half_of_what_it_loses_by_price(measured, unknown):
    """Regret at fixed λ over random pools of four; measured .132 at random, .084 by price, .034 and .031 by this."""
    draw, regret = np.random.default_rng(0), []
    for models, accuracy, cost, rows in measured.values():
        known = np.array([one.accuracy for one in guessed(models, cost, rows, unknown)])
        for _ in range(400):
            pool = draw.choice(len(models), 4, replace=False)
            scale = np.log(cost[pool])
            by_price = 0.6 + 0.2 * (scale - scale.min()) / max(float(np.ptp(scale)), 1e-12)
            for share in SHARES:
                paid = share * cost[pool] / cost.max()
                utility = accuracy[pool] - paid
                chosen = [np.argmax(by_price - paid), np.argmax(known[pool] - paid)]
                regret.append(utility.max() - [utility.mean(), *utility[chosen]])
    at_random, by_price, by_prior = np.mean(regret, axis=0)
    assert by_prior < by_price / 2
    assert by_prior < at_random / 3


# The file --------------------------------------------------------------------------------------------------------


def test_the_table_ships_with_the_attribution_of_every_source():
    folder = files("fedrouter.data")
    notice = folder.joinpath("model_abilities.NOTICE").read_text()
    assert "CC BY 4.0" in notice
    assert "https://creativecommons.org/licenses/by/4.0/" in notice
    assert "Changed" in notice
    assert "Permission is hereby granted, free of charge" in notice
    listed = notice.lower()
    assert {source for row in abilities().rows for source in row.sources if source not in listed} == set()
    assert "litellm" in listed  # prices
    patterns = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "fedrouter"
    ]
    for name in ("data/model_abilities.csv", "data/model_abilities.NOTICE"):
        assert any(fnmatch(name, pattern) for pattern in patterns)


def test_a_newer_table_is_made_from_leaderboards(tmp_path):
    """One number a model from benchmarks of unlike difficulty, some scores missing, in percent and in shares."""
    truth = {"gpt-4o-2024-08-06": 0.0, "GPT-4o": 0.0, "gpt-5": 1.3, "claude-v2": -1.2, "newcomer-70b-chat": 0.6}
    truth |= {"meta/llama-2-70b-chat": -2.0, "gemini-1.5-pro-002": -0.3, "Qwen/Qwen2.5-72B-Instruct": -0.1}
    for place in range(8):
        folder = tmp_path / "stats" / "data" / "organizations" / "one" / "models" / f"gpt-5-{place}"
        folder.mkdir(parents=True)
    entries = [
        {"benchmark_id": f"stat-{hard}", "model_id": model, "normalized_score": expected_accuracy(each - hard)}
        for hard in (0, 1)
        for model, each in truth.items()
    ]
    (folder / "benchmarks.json").write_text(json.dumps(entries))
    with (tmp_path / "board.csv").open("w") as file:
        print("model,easy,hard,elo,date", file=file)
        for model, each in truth.items():
            easy = "" if model == "gpt-5" else f"{100 * expected_accuracy(each):.3f}"
            print(f"{model},{easy},{100 * expected_accuracy(each - 2):.3f},1200,2025-01-01", file=file)
    price = {"input_cost_per_token": 2e-6, "output_cost_per_token": 1e-5, "max_input_tokens": 128000}
    (tmp_path / "prices.json").write_text(json.dumps({"newcomer-70b": price, "sample_spec": {}}))
    command = [sys.executable, PROJECT / "scripts" / "make_model_abilities.py", "--llm-stats", tmp_path / "stats"]
    command += ["--scores", f"board={tmp_path}/board.csv", "--prices", tmp_path / "prices.json"]
    subprocess.run([*command, "--out", tmp_path / "new.csv"], check=True, capture_output=True)
    made = read_abilities((tmp_path / "new.csv").read_text())
    assert [row.model for row in made.rows] == [
        *("gpt-5", "newcomer-70b", "gpt-4o", "qwen-2.5-72b", "gemini-1.5-pro", "claude-2", "llama-2-70b")
    ]
    assert made.find("gpt-4o").ability == 0
    newcomer = made.find("newcomer-70b-chat")
    assert newcomer.price == TokenPrice(2, 10)
    assert newcomer.sources == {"board", "llm-leaderboard"}
    with (tmp_path / "new.csv").open() as file:
        assert {entry["benchmarks"] for entry in csv.DictReader(file)} == {"3", "4"}
