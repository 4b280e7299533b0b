"""The published benchmarks in their own layouts, as small real files, and what is said of a wrong one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedrouter.data.read import read
from fedrouter.data.sprout import PRICES
from fedrouter.encoders.shape import STATISTICS
from fedrouter.errors import BadInput
from fedrouter.pool import ModelPool

EMBEDDED = "all_mpnet_base_v2_embedding"
DRAW = np.random.default_rng(0)
SONNET, MINI = "aws-claude-3-5-sonnet-v1", "openai-gpt-4o-mini"
RECORD = pa.struct(
    {
        "judge_response": pa.string(),
        "num_input_tokens": pa.int64(),
        "num_output_tokens": pa.int64(),
        "response": pa.string(),
        "score": pa.float64(),
    }
)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path_factory.getbasetemp() / "encoded"))


def vectors(rows, width=4):
    return DRAW.normal(size=(rows, width)).round(4).tolist()


# RouterBench


def routerbench(rows=6, **changes):
    """As published: prompts as lists of turns, answers beside the grades, the oracle's choice at the end."""
    models = {"gpt-4-1106-preview": 0.01, "mistralai/mistral-7b-chat": 0.0001}
    columns = {
        "sample_id": [f"made-up.val.{row}" for row in range(rows)],
        "prompt": [repr([f"Do this.\n\nFirst line {row}\nsecond “line”", "Why?"]) for row in range(rows)],
        "eval_name": ["mmlu-abstract-algebra", "grade-school-math", "mtbench-math"] * (rows // 3),
    }
    columns |= {name: [1.0, 0.0, 0.25] * (rows // 3) for name in models}
    columns |= {f"{name}|model_response": ["['an answer']"] * rows for name in models}
    columns |= {f"{name}|total_cost": [cost] * rows for name, cost in models.items()}
    columns["oracle_model_to_route_to"] = ["gpt-4-1106-preview"] * rows
    return {name: values for name, values in (columns | changes).items() if values is not None}


def pickled(path, columns):
    import pandas as pd

    frame = pd.DataFrame(columns)
    frame[["gpt-4-1106-preview", "mistralai/mistral-7b-chat"]] = frame[
        ["gpt-4-1106-preview", "mistralai/mistral-7b-chat"]
    ].astype(object)  # as in the published file
    frame.to_pickle(path)
    return path


def test_routerbenchs_pickle_reads_with_its_turns_written_out(tmp_path):
    dataset = read(pickled(tmp_path / "routerbench_0shot.pkl", routerbench()))
    evaluations = dataset.evaluations
    assert evaluations.pool.names == ("gpt-4-1106-preview", "mistralai/mistral-7b-chat")
    assert (evaluations.queries, len(evaluations), len(set(evaluations.task))) == (6, 12, 3)
    assert evaluations.text[1] == "Do this.\n\nFirst line 1\nsecond “line”\n\nWhy?"
    assert evaluations.grid().accuracy[:3, 0].tolist() == [1.0, 0.0, 0.25]
    assert (dataset.encoder.name, dataset.encoder.dimension) == ("static", 256 + len(STATISTICS))


@pytest.mark.parametrize(
    "prompt", ["[1, 2]", "[not a list]", "[]", "['an open list'", "[['a']]", "[" * 500 + "]" * 500]
)
def test_a_prompt_that_only_looks_like_turns_is_left_alone(tmp_path, prompt):
    path = tmp_path / "t.parquet"
    columns = routerbench(prompt=[prompt] * 6) | {EMBEDDED: vectors(6)}
    pyarrow.parquet.write_table(pa.table(columns), path)
    assert read(path).evaluations.text[0] == prompt


def test_answers_that_routerbench_did_not_grade_are_no_evaluations(tmp_path):
    grades = [None, 0.0, 0.25, 1.0, None, 0.25]
    columns = routerbench(**{"gpt-4-1106-preview": grades}) | {EMBEDDED: vectors(6)}
    path = tmp_path / "routerbench_5shot.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    known = read(path).evaluations.grid().known
    assert known[:, 0].tolist() == [False, True, True, True, False, True]
    assert known[:, 1].all()


# ProxRouter-Data: RouterBench's layout with right or wrong, and embeddings


def test_proxrouters_binary_grades_read_as_numbers_or_as_truth(tmp_path):
    for kind in (pa.int64(), pa.bool_(), pa.float32()):
        grades = pa.array([1, 0, 1]).cast(kind)
        columns = {"prompt": ["a", "b", "c"], "eval_name": ["gsm8k", "gsm8k", "mbpp"], "qwen": grades}
        columns |= {"qwen|total_cost": [0.0, 0.1, 0.2], EMBEDDED: vectors(3)}
        path = tmp_path / "proxrouter.parquet"
        pyarrow.parquet.write_table(pa.table(columns), path)
        assert read(path).evaluations.accuracy.tolist() == [1.0, 0.0, 1.0]


# SPROUT: records of score and tokens, in shards


def record(score=1.0, asked=100, answered=10, **more):
    return {
        "judge_response": '{"correctness_score": 1}',
        "num_input_tokens": asked,
        "num_output_tokens": answered,
        "response": "An answer.",
        "score": score,
    } | more


def sprout(rows=3, kind=RECORD, **changes):
    columns = {
        "key": [f"k{row}" for row in range(rows)],
        "dataset": ["TIGER-Lab/MMLU-Pro", "rungalileo/ragbench/finqa", "openhermes/teknium"][:rows],
        "dataset_level": ["x"] * rows,
        "dataset_idx": list(range(rows)),
        "prompt": [f"Question {row}?" for row in range(rows)],
        "golden_answer": ["yes"] * rows,
        SONNET: pa.array([record(0.8, 1_000_000, 200_000), record(0.25), record(1.0)][:rows], kind),
        MINI: pa.array([record(0.5, 1_000_000, 1_000_000), None, record(None)][:rows], kind),
        EMBEDDED: vectors(rows),
    } | changes
    return pa.table({name: values for name, values in columns.items() if values is not None})


def shards(folder, *tables):
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pyarrow.parquet.write_table(table, folder / f"train-{number:05d}-of-{len(tables):05d}.parquet")
    return folder


def test_sprouts_cost_is_its_tokens_at_list_price_and_the_pool_knows_the_prices(tmp_path):
    evaluations = read(shards(tmp_path / "sprout", sprout())).evaluations
    grid = evaluations.grid()
    assert evaluations.task == ("TIGER-Lab/MMLU-Pro", "rungalileo/ragbench/finqa", "openhermes/teknium")
    assert evaluations.pool.names == (SONNET, MINI)
    assert [(model.input_price, model.output_price) for model in evaluations.pool] == [(3.0, 15.0), (0.15, 0.6)]
    assert grid.accuracy[0].tolist() == [0.8, 0.5]
    assert grid.cost[0] == pytest.approx([3.0 + 3.0, 0.15 + 0.6])
    assert grid.cost[1, 0] == pytest.approx((100 * 3 + 10 * 15) / 1e6)


def test_a_sprout_answer_without_a_score_is_no_evaluation(tmp_path):
    known = read(shards(tmp_path / "sprout", sprout())).evaluations.grid().known
    assert known.tolist() == [[True, True], [True, False], [True, False]]


def test_shards_are_read_as_one_in_the_order_of_their_names(tmp_path):
    folder = shards(tmp_path / "sprout", sprout(3), sprout(2), sprout(1))
    together = read(folder)
    assert together.name == "sprout"
    assert together.evaluations.queries == 6
    assert together.evaluations.text == tuple(f"Question {row}?" for row in (0, 1, 2, 0, 1, 0))
    alone = read(folder / "train-00001-of-00003.parquet").evaluations
    assert np.array_equal(together.evaluations.embeddings[3:5], alone.embeddings)
    before = together.digest
    pyarrow.parquet.write_table(sprout(1, prompt=["Another?"]), folder / "train-00002-of-00003.parquet")
    assert read(folder).digest != before


def test_sprout_reads_from_lines_of_json_as_well(tmp_path):
    import json

    rows = sprout().to_pylist()
    (tmp_path / "sprout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines, table = read(tmp_path / "sprout.jsonl").evaluations, read(shards(tmp_path / "s", sprout())).evaluations
    assert np.array_equal(lines.cost, table.cost)
    assert np.array_equal(lines.accuracy, table.accuracy)


def test_a_given_pool_narrows_sprout_and_keeps_its_own_prices(tmp_path):
    folder = shards(tmp_path / "sprout", sprout())
    evaluations = read(folder, pool=ModelPool([MINI])).evaluations
    assert evaluations.pool.names == (MINI,)
    assert len(evaluations) == 1


def test_every_model_of_sprout_and_of_its_larger_sister_has_a_price():
    assert len(PRICES) == 14
    assert all(price > 0 for prices in PRICES.values() for price in prices)


def records(*cells, kind=RECORD):
    return pa.array(cells, kind)


SHORT = pa.struct({"score": pa.float64(), "num_input_tokens": pa.int64()})
SHORTER = {"score": 1.0, "num_input_tokens": 1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({SONNET: records(record(), record(1.5), record())}, rf"row 2, column '{SONNET}.score': .* got 1.5"),
        ({SONNET: records(record(), record(), record(asked=None))}, r"row 3, .*num_input_tokens': .* got nothing"),
        ({SONNET: records(*[record(answered=-1)] * 3)}, r"row 1, .*num_output_tokens': expected a number of tokens"),
        ({SONNET: records(*[SHORTER] * 3, kind=SHORT)}, rf"column '{SONNET}': .* no num_output_tokens"),
        ({"unheard-of": records(*[record()] * 3)}, r"column 'unheard-of': no price is known"),
        ({"dataset": None}, r"no column 'dataset'; the file has key"),
        ({"prompt": ["a", "", "c"], EMBEDDED: None}, r"row 2, column 'prompt': expected text"),
    ],
)
def test_a_wrong_sprout_is_refused_by_file_row_and_column(tmp_path, changes, said):
    folder = shards(tmp_path / "sprout", sprout(**changes))
    with pytest.raises(BadInput, match=said) as caught:
        read(folder)
    assert str(folder) in str(caught.value)


def test_a_row_is_named_in_its_own_shard(tmp_path):
    bad = pa.array([record(), record(7.0), record()], RECORD)
    folder = shards(tmp_path / "sprout", sprout(), sprout(**{SONNET: bad}))
    with pytest.raises(BadInput, match=r"train-00001-of-00002\.parquet: row 2, .*score'"):
        read(folder)


def test_shards_that_are_not_of_one_table_are_refused(tmp_path):
    folder = shards(tmp_path / "mixed", sprout(), sprout(**{MINI: None}))
    with pytest.raises(BadInput, match=rf"train-00001-of-00002\.parquet: .* not those of train-00000.*: {MINI}"):
        read(folder)
    wide = sprout(**{EMBEDDED: vectors(3, 5)})
    with pytest.raises(BadInput, match=r"00001-of-00002.*: expected width 4 as in train-00000-of-00002.parquet, got 5"):
        read(shards(tmp_path / "wide", sprout(), wide))


def test_a_folder_without_shards_says_what_was_expected(tmp_path):
    with pytest.raises(BadInput, match=r"a folder without \.parquet files; expected shards"):
        read(tmp_path)
