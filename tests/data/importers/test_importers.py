"""Logs of other tools become evaluation logs; the files are the tools' own (files/README.md)."""

import json
import shutil
import struct
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.command import answer, run
from fedrouter.data.importers.row import prompt_text
from fedrouter.data.prices import price_table
from fedrouter.data.read import read

FILES = Path(__file__).with_name("files")
MINI, LARGE = (price_table().models[name].price for name in ("gpt-4o-mini", "gpt-4o"))


def imported(tool, *files, out, **options):
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    document = answer("import", tool, *files, "--out", out, *flags)
    rows = pq.read_table(out).to_pylist()
    assert document["rows"] == len(rows) == len(read(out).evaluations)
    return document, rows


def test_lm_eval_samples(tmp_path):
    samples = sorted((FILES / "lm-eval").glob("samples_*.jsonl"))
    document, rows = imported("lm-eval", *samples, out=tmp_path / "log.parquet", model="gpt-4o-mini")
    assert document["models"] == {"gpt-4o-mini": 7}
    assert {row["task"] for row in rows} == {"tiny_qa", "tiny_mc"}
    right = {row["prompt"]: row["accuracy"] for row in rows}
    assert right["Question: What is 2 + 2?\nAnswer:"] == 0
    assert right["Question: Say lol.\nAnswer:"] == 1
    assert right["The sky is"] == 1
    sky = next(row for row in rows if row["prompt"] == "The sky is")
    characters = 2 * len("The sky is") + len(" blue") + len(" made of iron")
    assert sky["cost"] == pytest.approx(MINI.cost(characters / 4, 0))
    assert document["priced"] == {"gpt-4o-mini": "gpt-4o-mini"}


def test_lm_eval_s_model_is_in_the_results_beside_the_samples(tmp_path):
    samples = next((FILES / "lm-eval").glob("samples_tiny_qa_*"))
    name = json.loads(next((FILES / "lm-eval").glob("results_*")).read_text())["model_name"]
    document, _ = imported("lm-eval", samples, out=tmp_path / "log.parquet", price=f"{name}=1/2")
    assert document["models"] == {name: 4}
    assert document["prices"] is None
    alone = shutil.copy(samples, tmp_path)
    done = run("import", "lm-eval", alone, "--out", tmp_path / "none.parquet")
    assert "expected model_name in results_*.json beside it, or --model NAME" in done.stderr


def unpacked(path: Path) -> dict[str, bytes]:
    """The members of an archive compressed with Zstandard."""
    found, raw = {}, path.read_bytes()
    for member in zipfile.ZipFile(path).infolist():
        name, extra = struct.unpack("<HH", raw[member.header_offset + 26 : member.header_offset + 30])
        start = member.header_offset + 30 + name + extra
        packed = raw[start : start + member.compress_size]
        found[member.filename] = pa.decompress(packed, member.file_size, codec="zstd", asbytes=True)
    return found


@pytest.mark.parametrize("form", ["eval", "deflated", "json"])
def test_inspect_logs(form, tmp_path):
    logs = []
    for number, path in enumerate(sorted((FILES / "inspect").glob("*.eval"))):
        logs.append(path)
        members = unpacked(path)
        if form == "json":
            samples = [json.loads(text) for name, text in members.items() if name.startswith("samples/")]
            logs[-1] = tmp_path / f"{number}.json"
            logs[-1].write_text(json.dumps(json.loads(members["header.json"]) | {"samples": samples}))
        elif form == "deflated":  # as older versions wrote them
            logs[-1] = tmp_path / f"{number}.eval"
            with zipfile.ZipFile(logs[-1], "w", zipfile.ZIP_DEFLATED) as archive:
                for name, text in members.items():
                    archive.writestr(name, text)
    document, rows = imported("inspect", *logs, out=tmp_path / "log.parquet")
    assert document["models"] == {"mockllm/gpt-4o": 2, "mockllm/gpt-4o-mini": 2}
    scores = {(row["model"], row["prompt"]): row["accuracy"] for row in rows}
    assert scores["mockllm/gpt-4o-mini", "What is the capital of France?"] == 0
    assert scores["mockllm/gpt-4o", "What is the capital of France?"] == 1
    first = next(row for row in rows if row["model"] == "mockllm/gpt-4o" and "2 + 2" in row["prompt"])
    assert first["cost"] == pytest.approx(LARGE.cost(20, 2))


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_promptfoo_results(form, tmp_path):
    document, rows = imported("promptfoo", FILES / "promptfoo" / f"results.{form}", out=tmp_path / "log.parquet")
    assert document["models"] == {"openai:gpt-4o": 2, "openai:chat:gpt-4o-mini": 2}
    assert document["priced"] == {"openai:chat:gpt-4o-mini": "gpt-4o-mini"}
    found = {(row["model"], "France" in row["prompt"]): (row["accuracy"], row["cost"]) for row in rows}
    assert found["openai:gpt-4o", True] == (1, 0.0003)
    assert found["openai:chat:gpt-4o-mini", True][0] == 0
    assert found["openai:chat:gpt-4o-mini", False] == (1, pytest.approx(MINI.cost(30, 2)))


def test_litellm_spend_logs(tmp_path):
    logs = FILES / "litellm" / "spend_logs.json"
    document, rows = imported("litellm", logs, out=tmp_path / "log.parquet")
    assert (document["models"], document["priced"]) == ({"gpt-4o-mini": 2, "gpt-4o": 2}, {})
    found = {(row["model"], row["prompt"]): (row["accuracy"], row["cost"]) for row in rows}
    assert found["gpt-4o-mini", "What is the capital of France?"] == (0, pytest.approx(1.35e-5))
    assert found["gpt-4o", "What is 2 + 2?"][0] == 1
    done = run("import", "litellm", logs, "--out", tmp_path / "x.parquet", "--score", "metadata.grade")
    assert "no row has a score; expected metadata.spend_logs_metadata.score" in done.stderr


def test_one_name_for_several_models_is_said(tmp_path):
    given = "import", "litellm", FILES / "litellm" / "spend_logs.json", "--model", "gpt-4o"
    done = run(*given, "--out", tmp_path / "log.parquet")
    assert "--model gpt-4o stands for several models of the files: gpt-4o (2), gpt-4o-mini (2)" in done.stdout
    document = answer(*given, "--out", tmp_path / "log.parquet")
    assert (document["models"], document["renamed"]) == ({"gpt-4o": 4}, {"gpt-4o": 2, "gpt-4o-mini": 2})


def test_langfuse_exports(tmp_path):
    files = [FILES / "langfuse" / name for name in ("observations_v2.jsonl", "scores.jsonl")]
    document, rows = imported("langfuse", *files, out=tmp_path / "log.parquet", score="correct")
    assert (document["models"], document["without_score"]) == ({"gpt-4o-mini": 1, "gpt-4o": 1}, 1)
    assert [(row["accuracy"], row["prompt"], row["task"]) for row in rows] == [
        (0, "What is 2 + 2?", "support"),
        (1, "What is 2 + 2?", "support"),
    ]
    assert rows[0]["cost"] == pytest.approx(4.2e-6)
    assert rows[1]["cost"] == pytest.approx(LARGE.cost(20, 2))


def test_langfuse_s_api_names_the_same_things_in_camel_case(tmp_path):
    observation = {
        "id": "o", "traceId": "t", "type": "GENERATION", "model": "m",
        "input": {"messages": [{"role": "user", "content": "hi"}]},
        "usageDetails": {"input": 1, "output": 2}, "calculatedTotalCost": 0.5,
    }  # fmt: skip
    (tmp_path / "o.json").write_text(json.dumps({"data": [observation], "meta": {"page": 1}}))
    (tmp_path / "s.json").write_text(json.dumps({"data": [{"id": "s", "traceId": "t", "name": "good", "value": 1}]}))
    _, rows = imported("langfuse", tmp_path / "o.json", tmp_path / "s.json", out=tmp_path / "log.parquet")
    assert [(row["prompt"], row["accuracy"], row["cost"]) for row in rows] == [("hi", 1.0, 0.5)]


def test_a_model_without_price_or_cost_is_named_with_the_option_that_helps(tmp_path):
    entry = {"request_id": "r", "spend": 0, "model": "house", "messages": "hi", "prompt_tokens": 5}
    entry |= {"completion_tokens": 5, "metadata": {"spend_logs_metadata": {"score": 1}}}
    (tmp_path / "s.json").write_text(json.dumps([entry]))
    flags = ("import", "litellm", tmp_path / "s.json", "--out", tmp_path / "log.parquet")
    done = run(*flags)
    assert done.returncode == 2
    assert "entry 1: no cost, and no price is known for the model 'house'" in done.stderr
    assert "--price 'house=INPUT/OUTPUT'" in done.stderr.replace("\n", " ")
    assert not (tmp_path / "log.parquet").exists()
    assert answer(*flags, "--price", "house=0/0")["priced"] == {"house": "--price"}


@pytest.mark.parametrize(
    ("tool", "text", "said"),
    [
        ("lm-eval", '{"hello": 1}', "not a sample of lm-eval"),
        ("inspect", '{"hello": 1}', "not a log of Inspect"),
        ("promptfoo", '{"hello": 1}', "not a result of promptfoo"),
        ("litellm", '{"hello": 1}', "not a spend log of LiteLLM"),
        ("langfuse", '{"hello": 1}', "neither an observation nor a score of Langfuse"),
        ("litellm", '\nsecret words', "line 2: expected JSON"),
        ("litellm", '{"request_id": "r", "spend": 1, "messages": {}}', "no prompt; set store_prompts"),
        ("promptfoo", '{"prompt": {"raw": "secret"}, "provider": {"id": "m"}, "score": 7}', "a score from 0 to 1"),
        ("promptfoo", '{"prompt": {"raw": "secret"}, "provider": {"id": "m"}, "score": 1}', "neither a cost nor"),
        ("elsewhere", "{}", "TOOL: expected one of lm-eval, inspect, promptfoo, litellm, langfuse"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_line_without_its_words(tool, text, said, tmp_path):
    (tmp_path / "in.json").write_text(text)
    done = run("import", tool, tmp_path / "in.json", "--out", tmp_path / "log.parquet", "--model", "gpt-4o")
    assert done.returncode == 2
    assert said in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "log.parquet").exists()


def test_a_damaged_archive_is_refused(tmp_path):
    path = next((FILES / "inspect").glob("*.eval"))
    whole, members = path.read_bytes(), zipfile.ZipFile(path).infolist()
    start = next(member.header_offset for member in members if member.filename.startswith("samples/")) + 100
    (tmp_path / "log.eval").write_bytes(whole[:start] + b"\xff" * 100 + whole[start + 100 :])
    done = run("import", "inspect", tmp_path / "log.eval", "--out", tmp_path / "log.parquet")
    assert done.returncode == 2
    assert "damaged" in done.stderr


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("[1, 2] is a list", "[1, 2] is a list"),
        ('[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]', "a"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}], "x"),
        ({"messages": [{"role": "user", "content": "c"}]}, "c"),
        ([{"role": "system", "content": "c"}], ""),
        (7, ""),
    ],
)
def test_the_prompt_is_what_the_user_asked(value, text):
    assert prompt_text(value) == text


def test_a_price_for_a_model_that_no_row_names_is_refused(tmp_path):
    results, out = FILES / "promptfoo" / "results.json", tmp_path / "log.parquet"
    # The files call it openai:gpt-4o.
    done = run("import", "promptfoo", results, "--out", out, "--price", "gpt-4o=1/2")
    assert done.returncode == 2
    assert "--price gpt-4o: no such model in these files; they have openai:chat:gpt-4o-mini" in done.stderr
    assert not out.exists()
