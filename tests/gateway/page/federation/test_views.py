"""What the page of a state directory says, who may see it, and that it changes nothing."""

from __future__ import annotations

import shutil
import sqlite3

import httpx2 as httpx
import pytest

from fedrouter.deployment.state.directories import open_client
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.gateway.page.federation.client import journal_entry
from fedrouter.gateway.page.federation.view import view_of
from gateway.page.federation.conftest import KEY, NAMES
from gateway.page.visitor import MARK, Visitor


def test_a_coordinator_shows_who_answered_which_round_and_how_much_was_sent(directories):
    found = view_of(directories[0])
    (run,) = found["runs"]
    assert [each["name"] for each in found["members"]] == list(NAMES)
    assert len(run["rounds"]) == len(run["grid"]["north"]) > 2
    assert run["rounds"][0] == "hello"
    assert all(cell["state"] == "answered" for cell in run["grid"]["north"])
    assert run["grid"]["north"][0]["bytes"] > 0
    assert run["grid"]["west"][1]["state"] == "refused"
    assert run["vote"]["status"] in ("accepted", "candidate", "rejected")
    assert run["vote"]["why"]
    member = next(each for each in found["members"] if each["name"] == "north")
    assert member["rows"] > 0
    assert member["bytes"] == sum(cell["bytes"] for cell in run["grid"]["north"])


def test_a_coordinator_shows_which_regions_and_models_have_rows(directories):
    coverage = view_of(directories[0])["coverage"]
    assert coverage["run"] == "run-1"
    assert len(coverage["rows"][0]) == len(coverage["models"]) == 3
    assert sum(map(sum, coverage["rows"])) > 0


def test_a_client_shows_every_message_and_question_of_its_journal(directories):
    found = view_of(directories[1])
    assert found["verified"] == len(found["messages"]) > 0
    assert {each["verb"] for each in found["messages"]} <= set(VERBS)
    assert all(each["leaves"] for each in found["messages"])
    assert found["questions"]
    newest = found["messages"][0]["number"]
    entry = journal_entry(directories[1], "message", newest)
    assert entry["verb"] == found["messages"][0]["verb"]
    statistics = next(each["number"] for each in found["messages"] if each["verb"] == "statistics")
    arrays = {each["name"]: each for each in journal_entry(directories[1], "message", statistics)["arrays"]}
    assert arrays["accuracy"]["type"] == "exact sums"
    pairs = zip(arrays["accuracy"]["numbers"], arrays["count"]["numbers"], strict=True)
    assert all(0 <= total <= rows for total, rows in pairs)
    assert found["budget"] is None


def test_a_journal_that_was_changed_is_not_shown(directories, tmp_path):
    shutil.copytree(directories[1].path, tmp_path / "copy")
    with sqlite3.connect(tmp_path / "copy" / "journal.sqlite") as connection:
        connection.execute("DROP TRIGGER sent_is_never_changed")
        connection.execute("UPDATE sent SET bytes = bytes + 1 WHERE number = 1")
    found = view_of(open_client(tmp_path / "copy"))
    assert found["verified"] is None
    assert "is not as it was written" in found["problem"]
    assert not found["messages"]


@pytest.fixture(scope="module")
def url(directories, serve_directory):
    return serve_directory(directories[1])


def test_without_the_key_nothing_is_shown(url):
    with httpx.Client(base_url=f"{url}/page/api/", headers=MARK) as stranger:
        assert stranger.get("session").json() is None
        assert stranger.post("session", json={"key": "frp-guessed"}).status_code == 401
        assert stranger.post("session", content=b"[]").status_code == 401
        for path in ("federation", "message/1", "question/1"):
            assert stranger.get(path).status_code == 401


def test_with_the_key_everything_can_be_read_and_nothing_changed(url):
    visitor = Visitor(url, KEY)
    assert visitor.signed_in.headers["set-cookie"].endswith("HttpOnly; SameSite=Strict")
    assert visitor.get("session").json()["kind"] == "client"
    assert visitor.get("federation").json()["name"] == "north"
    assert visitor.get("message/1").json()["arrays"] is not None
    assert visitor.get("message/999").status_code == 404
    assert visitor.get("message/x").status_code == 404
    for number in ("%C2%B2", "9" * 5000):
        assert visitor.get(f"message/{number}").status_code == 404
    assert visitor.post("federation").status_code == 405
    visitor.http.request("DELETE", "session")
    assert visitor.get("federation").status_code == 401
    visitor.http.close()


def test_requests_by_another_name_or_from_another_site_are_refused(url):
    with httpx.Client(base_url=url) as browser:
        assert browser.get("/", headers={"host": "evil.example"}).status_code == 403
        assert browser.get("/page/api/federation", headers={"origin": "https://evil.example"}).status_code == 403
        shown = browser.get("/")
        assert shown.status_code == 200
        assert "script-src 'self'" in shown.headers["content-security-policy"]
        assert shown.headers["x-frame-options"] == "DENY"
