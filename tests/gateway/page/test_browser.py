"""The page in a real browser."""

import time

import numpy as np

from fedrouter.bundle import load
from fedrouter.data.simulator import simulated_world
from fedrouter.encoders import STATIC
from fedrouter.store.records import Record, new_id
from gateway.page.windows import sign_in
from gateway.running import NAMES, SQL, eventually


def test_a_wrong_key_is_refused_and_a_right_one_shows_the_overview_until_sign_out(page, windows, site):
    site.gateway.chat(SQL)
    sign_in(page, "fr-wrong")
    page.get_by_role("alert").get_by_text("unknown, disabled or expired").wait_for()
    windows.expected.append("401")
    sign_in(page, site.key)
    page.get_by_role("heading", name="Overview").wait_for()
    page.get_by_text("Saved against atlas-max").wait_for()
    page.get_by_text("Requests by model").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").wait_for()


def test_the_page_of_a_disabled_key_goes_back_to_signing_in(windows, site):
    identity, token = site.gateway.store.create_key("leaving", admin=True)
    with windows.new(token) as page:
        page.goto("/")
        page.get_by_text("Saved against").wait_for()
        site.gateway.store.disable_key(identity)
        page.get_by_label("API key").wait_for()
        windows.expected.append("401")


def test_a_view_chosen_while_the_first_one_is_drawn_is_shown(admin):
    admin.add_init_script(
        """new MutationObserver((_, watching) => {
            if (!document.querySelector("main#content h1")) return;
            watching.disconnect();
            location.hash = "#/frontier";
        }).observe(document, { childList: true, subtree: true });"""
    )
    admin.goto("/#/overview")
    admin.get_by_role("heading", name="Frontier", exact=True).wait_for()


def test_a_request_of_another_client_appears_without_reloading(admin, site):
    admin.goto("/#/decisions")
    admin.get_by_label("Status").wait_for()
    site.gateway.chat("A prompt that was never sent before.")
    admin.get_by_text("A prompt that was never sent before.").wait_for()


def test_decisions_are_filtered_searched_opened_and_scored(admin, site):
    site.gateway.chat("Named on purpose.")  # its embedding is cached now: a named request does not wait for its own
    named = site.gateway.chat("Named on purpose.", model="indigo-nano").headers["x-fedrouter-decision-id"]
    site.gateway.chat("Routed by the router.")
    admin.goto("/#/decisions")
    admin.get_by_text("Routed by the router.").first.wait_for()
    admin.get_by_label("Reason").select_option("named")
    admin.get_by_text("Routed by the router.").first.wait_for(state="detached")
    admin.get_by_text("Named on purpose.").first.click()
    dialog = admin.get_by_role("dialog")
    dialog.get_by_role("button", name="Good").click()
    dialog.get_by_role("heading", name="Scores").wait_for()
    assert site.gateway.store.get(named).score == 1.0
    dialog.get_by_text("Details").click()
    dialog.get_by_text("accuracy per US dollar").wait_for()
    admin.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    admin.get_by_role("button", name="Clear").click()
    admin.get_by_text("Routed by the router.").first.wait_for()
    admin.get_by_label("Prompt contains").fill("named ON")
    admin.get_by_text("Routed by the router.").first.wait_for(state="detached")
    admin.get_by_text("Named on purpose.").first.wait_for()


def test_dragging_the_dial_moves_the_point_and_an_admin_applies_it(admin, site):
    admin.goto("/#/frontier")
    admin.locator("canvas").wait_for()
    dial = admin.get_by_role("slider", name="Dial")
    dial.hover()  # in its middle, once nothing moves any more
    box = dial.bounding_box()
    admin.mouse.down()
    admin.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2, steps=5)
    admin.mouse.up()
    assert float(dial.input_value()) < 1
    dial.fill("2")
    admin.get_by_role("button", name="Apply 2.0").click()
    admin.get_by_text("in service").wait_for()
    assert site.gateway.store.setting("tradeoff") == '{"dial":2.0}'
    admin.get_by_role("button", name="Back to the config's").click()
    admin.get_by_role("button", name="Back to the config's").wait_for(state="detached")
    assert site.gateway.store.setting("tradeoff") is None


def test_the_playground_predicts_streams_compares_and_scores(admin, site):
    admin.goto("/#/playground")
    admin.get_by_label("Prompt").fill("A question for two models.")
    admin.get_by_text("Choice at each dial").wait_for()
    admin.get_by_label("beside").select_option("atlas-max")
    admin.get_by_role("button", name="Send").click()
    answer = admin.get_by_role("region", name="Answer of atlas-max")
    answer.get_by_text("word4").wait_for()
    admin.get_by_role("button", name="Good").nth(1).wait_for()
    admin.get_by_role("button", name="Good").nth(1).click()
    admin.get_by_role("button", name="Good", pressed=True).wait_for()
    newest = site.gateway.store.latest(2)
    assert {record.text for record in newest} == {"A question for two models."}
    assert [record.score for record in newest if record.reason == "named"] == [1.0]


def test_keys_are_created_edited_and_disabled(admin, windows, site):
    admin.goto("/#/keys")
    admin.get_by_role("button", name="Create a key").click()
    form = admin.get_by_role("dialog")
    form.get_by_label("Name").fill("made in a browser")
    form.get_by_label("Daily budget").fill("5")
    form.get_by_label("Models").fill("atlas-*, indigo-nano")
    form.get_by_label("Requests choose by").select_option("quality")
    form.get_by_label("set to").fill("9")
    form.get_by_role("button", name="Create").click()
    form.get_by_role("alert").get_by_text("quality").wait_for()
    windows.expected.append("400")
    assert form.get_by_label("Name").input_value() == "made in a browser"  # what was typed outlives a new drawing
    form.get_by_label("set to").fill("0.9")
    form.get_by_role("button", name="Create").click()
    token = admin.locator("code", has_text="fr-").inner_text()
    made = site.gateway.store.key_of(token)
    assert (made.name, made.daily_budget, made.admin) == ("made in a browser", 5.0, False)
    assert (made.models, made.quality, made.dial, made.max_cost) == (("atlas-*", "indigo-nano"), 0.9, None, None)
    admin.get_by_role("button", name="Edit made in a browser").click()
    assert form.get_by_label("Models").input_value() == "atlas-*, indigo-nano"
    assert (form.get_by_label("Requests choose by").input_value(), form.get_by_label("set to").input_value()) == (
        "quality",
        "0.9",
    )
    form.get_by_label("Expires").fill("2020-01-01")
    form.get_by_role("button", name="Save").click()
    admin.get_by_text("expired").wait_for()
    assert site.gateway.store.key_of(token) is None
    admin.on("dialog", lambda dialog: dialog.accept())
    admin.get_by_role("button", name="Disable made in a browser").click()
    admin.get_by_role("row", name="made in a browser").get_by_text("disabled").wait_for()


def test_what_was_learned_and_kept_is_shown_and_a_bundle_in_service_is_rolled_back(admin, site, bundle):
    site.gateway.http.put("/v1/tradeoff", json={"quality": 0.95})
    fill_with_scored_traffic(site)
    assert eventually(lambda: site.visitor().get("learning").json()["target"], 60) == 0.95
    admin.goto("/#/learning")
    admin.get_by_text("follows what is learned").wait_for()
    admin.get_by_text("target 95%").wait_for()
    site.gateway.store.set_current(load(bundle).manifest["digest"], str(bundle))
    eventually(lambda: site.visitor().get("learning").json()["frozen"], 60)
    admin.reload()
    admin.get_by_text("a bundle, frozen").wait_for()
    admin.get_by_role("button", name="Roll back").click()
    admin.get_by_text("follows what is learned").wait_for()
    assert site.gateway.store.current() is None


def fill_with_scored_traffic(site) -> None:
    """Requests whose model was drawn evenly, with the scores of the simulated world."""
    world = simulated_world().evaluations
    grid, draw, now = world.grid(), np.random.default_rng(0), time.time()
    models = draw.integers(len(NAMES), size=300)
    site.gateway.store.append(
        [
            Record(
                id=new_id(now - 300 + query),
                time=now - 300 + query,
                key="simulated",
                bundle="",
                version=1,
                family="kmeans",
                tradeoff=100.0,
                chosen=NAMES[model],
                served=NAMES[model],
                reason="explored",
                propensity=1 / len(NAMES),
                explored=True,
                predicted_accuracy=0.5,
                predicted_cost=0.001,
                embedding=world.embeddings[query].astype("<f4").tobytes(),
                encoder=STATIC,
                cost=float(grid.cost[query, model]),
                score=float(grid.accuracy[query, model]),
                scored_by="feedback:simulated",
                scored_at=now - 300 + query,
                quality=0.95,
            )
            for query, model in enumerate(models)
        ]
    )
