"""`fedrouter log`, `usage` and `key` as a user runs them: on a real store."""

import dataclasses
import json
import re
import time

import pytest

from cli.command import answer, run
from fedrouter.data.read import read
from fedrouter.store.records import Record, new_id
from fedrouter.store.store import Store


@pytest.fixture
def store(tmp_path):
    """Ten requests of as many days, the oldest first; all but the last are scored."""
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with Store.open(url) as opened:
        for number in range(10):
            at = time.time() - (9 - number) * 86400
            made = Record(
                id=new_id(at),
                time=at,
                key="key-1",
                bundle="sha256:0",
                version=1,
                family="kmeans",
                tradeoff=1.0,
                chosen="large",
                served="small" if number % 2 else "large",
                reason="routed",
                embedding=bytes([number] * 16),
                encoder="all-MiniLM-L6-v2",
                text="SECRET-PROMPT",
                cost=0.25,
                baseline_cost=1.0,
            )
            opened.append([made])
            if number < 9:
                opened.score(made.id, number / 8, "user")
    return url


def test_export_writes_a_file_that_the_rest_reads(store, tmp_path):
    document = answer("log", "--store", store, "--out", tmp_path / "log.parquet")
    assert (document["rows"], document["left_out"]) == (9, 1)
    found = read(tmp_path / "log.parquet").evaluations
    assert found.accuracy.tolist() == [number / 8 for number in range(9)]
    since = answer("log", "--store", store, "--out", tmp_path / "log.csv", "--since", "5d")
    assert since["rows"] == 4


@pytest.mark.parametrize(("width", "shows"), [(80, "UTC"), (120, "time (UTC)"), (160, "reason")])
def test_show_has_one_line_for_each_decision(store, tmp_path, width, shows):
    with Store.open(store) as opened:
        first = opened.latest(1)[0]
        at = time.time()
        costly = dataclasses.replace(first, id=new_id(at), time=at, served="claude-sonnet-4-5", cost=0.0000123)
        failed = dataclasses.replace(costly, id=new_id(at), served=None, cost=None, status="upstream_error")
        opened.append([costly, failed])
    printed = run("log", "--store", store, COLUMNS=str(width))
    lines = printed.stdout.splitlines()
    assert len(lines) == 1 + 12
    assert max(map(len, lines)) <= width
    assert shows in lines[0]
    assert any(failed.id in line and "upstream_error" in line for line in lines)


def test_show_lists_the_newest_and_explains_one_without_its_prompt(store):
    listed = answer("log", "--store", store, "--limit", 3)["decisions"]
    assert [decision["score"] for decision in listed] == [None, 1.0, 0.875]
    one = run("log", listed[1]["id"], "--store", store, "--json")
    document = json.loads(one.stdout)
    assert document["served"] == "large"
    assert [sent["score"] for sent in document["feedback"]] == [1.0]
    assert "SECRET" not in one.stdout + one.stderr
    plain = run("log", listed[1]["id"], "--store", store)
    assert plain.returncode == 0
    assert "routed" in plain.stdout
    assert "predicted_accuracy" in plain.stdout  # no name is cut off
    assert re.search(r"^time +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC *$", plain.stdout, re.MULTILINE)
    assert "SECRET" not in plain.stdout


def test_usage_counts_rows_that_were_deleted(store):
    before = answer("usage", "--store", store, "--by", "model")
    assert before["total"] == {"requests": 10, "cost": 2.5, "baseline_cost": 10.0, "saved": 7.5}
    assert len(answer("log", "--store", store, "--since", "90h")["decisions"]) == 4
    with Store.open(store) as opened:
        assert opened.prune(time.time() - 90 * 3600) == 6
    assert len(answer("log", "--store", store)["decisions"]) == 4
    assert answer("usage", "--store", store, "--by", "model") == before
    assert len(answer("usage", "--store", store, "--since", "36h")["rows"]) == 2


def test_a_key_is_shown_once_and_listed_without_its_token(tmp_path):
    url = f"sqlite:///{tmp_path / 'new.db'}"
    made = answer("key", "create", "web", "daily_budget=2.5", "rate_per_minute=60", "--store", url)
    plain = run("key", "create", "other", "--store", url)
    token = re.search(r"fr-\S{43}", plain.stdout)[0]
    with Store.open(url) as opened:
        assert opened.key_of(made["token"]).id == made["id"]
        assert opened.key_of(token).name == "other"
    listed = run("key", "list", "--store", url, "--json").stdout
    assert made["token"] not in listed
    assert [key["name"] for key in json.loads(listed)["keys"]] == ["web", "other"]
    other = json.loads(listed)["keys"][1]["id"]
    assert answer("key", "revoke", other, "--store", url)["disabled"]
    with Store.open(url) as opened:
        assert opened.key_of(token) is None


def test_the_first_key_is_an_admins_and_the_last_admin_key_stays(tmp_path):
    url = f"sqlite:///{tmp_path / 'new.db'}"
    first, second = (answer("key", "create", name, "--store", url) for name in ("one", "two"))
    assert (first["admin"], second["admin"]) == (True, False)
    assert "last admin key" in run("key", "revoke", first["id"], "--store", url).stderr
    assert answer("key", "revoke", second["id"], "--store", url)["disabled"]


def test_the_store_is_the_configs_or_the_default_one(store, tmp_path):
    (tmp_path / "gateway.yaml").write_text("store: sqlite:///log.db\nmodel_list: []\n")
    assert len(answer("log", "--store", "gateway.yaml", cwd=tmp_path)["decisions"]) == 10
    (tmp_path / "log.db").rename(tmp_path / "fedrouter.db")
    assert len(answer("log", cwd=tmp_path)["decisions"]) == 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("log", "--store", "sqlite:///none.db"), "no such file"),
        (("log", "nobody"), "decision 'nobody': not in"),
        (("log", "--since", "soon"), "--since: expected a date like"),
        (("log", "--out", "log.txt"), "expected a file ending in"),
        (("log", "--store", "none.yaml"), "none.yaml: cannot be read"),
        (("key", "revoke", "key-nobody"), "key list"),
        (("key", "create", "web", "rate_per_minute=often"), "rate_per_minute: expected a number, got 'often'"),
        (("key", "create", "web", "budget=5"), "key, field 'budget': unknown; expected one of name, daily_budget"),
        (("key", "create", "web", "5"), "5: expected SETTING=VALUE"),
        (("key", "edit", "key-nobody"), "expected something to change, such as daily_budget=5"),
        (("log", "prune", "--before", "90d"), "log prune: removed; use retention: {days: 90}"),
        (("usage", "--store", "redis://x"), "expected sqlite:///PATH"),
    ],
)
def test_what_a_user_can_put_right_is_one_line(store, tmp_path, arguments, said):
    (tmp_path / "log.db").rename(tmp_path / "fedrouter.db")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "none.db").exists()


def test_what_clients_wrote_cannot_dress_up_the_terminal(store):
    with Store.open(store) as opened:
        first = next(opened.rows())
        odd = dataclasses.replace(first, id=new_id(), session="[/nonsense] \x1b[31mred", task="[bold]x")
        opened.append([odd])
    assert answer("log", odd.id, "--store", store)["session"] == odd.session
    shown = run("log", odd.id, "--store", store)
    assert shown.returncode == 0, shown.stderr
    assert "[/nonsense] \N{REPLACEMENT CHARACTER}[31mred" in shown.stdout
    assert "[bold]x" in shown.stdout
    assert run("key", "create", "[/a]", "--store", store).returncode == 0
    assert "[/a]" in run("key", "list", "--store", store).stdout


def test_tables_for_people_have_a_row_a_group(store):
    shown = run("usage", "--store", store).stdout
    assert "10 requests, $2.5000, saved $7.5000" in shown
    assert shown.count("75%") == 10


def test_an_id_that_was_shown_can_be_pasted_back(store):
    with Store.open(store) as opened:
        newest = opened.latest(1)[0]
    shown = run("log", "--store", store, COLUMNS="80").stdout
    pasted = next(word for word in shown.split() if word.startswith(newest.id[:12]))
    assert answer("log", pasted, "--store", store)["id"] == newest.id


def test_a_small_amount_is_not_shown_as_nothing(store):
    with Store.open(store) as opened:
        small = dataclasses.replace(opened.latest(1)[0], id=new_id(), cost=0.00000042, baseline_cost=0.00000091)
        opened.prune(time.time() + 1)
        opened.append([dataclasses.replace(small, time=time.time(), key="key-2")])
    assert "0.00000042" in run("log", "--store", store).stdout
    shown = run("usage", "--store", store, "--by", "key").stdout
    assert "0.00000042" in shown
    assert "0.00000049" in shown


@pytest.mark.slow
def test_a_key_is_edited_and_its_settings_are_shown(store):
    made = answer("key", "create", "app", "models=small,la*", "dial=3", "expires=30d", "--store", store)
    assert (made["models"], made["dial"]) == (["small", "la*"], 3.0)
    edit = ("key", "edit", made["id"], "--store", store)
    changed = answer(*edit, "dial=", "quality=0.9", "daily_budget=2", "name=web")
    assert (changed["dial"], changed["quality"], changed["daily_budget"], changed["name"]) == (None, 0.9, 2.0, "web")
    assert 29 * 86400 < changed["expires"] - time.time() < 31 * 86400
    shown = run("key", "list", "--store", store).stdout
    for cell in (made["id"], "web", "$2.00 a day", "small", "quality 0.9", "until"):
        assert cell in shown
    wrong = run(*edit, "color=")
    assert (wrong.returncode, "color" in wrong.stderr) == (2, True)
