"""Signing in: the cookie, wrong keys, other sites, and headers that keep the page to itself."""

import httpx2 as httpx
import pytest

from gateway.page.visitor import MARK
from gateway.running import config_for


def test_a_key_opens_a_session_whose_cookie_scripts_and_other_sites_cannot_use(site):
    visitor = site.visitor()
    cookie = visitor.signed_in.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    assert site.gateway.key not in cookie
    who = visitor.get("session").json()
    assert (who["admin"], who["name"]) == (True, "first")
    assert site.visitor(site.plain).get("session").json()["admin"] is False


def test_behind_tls_the_cookie_is_only_for_tls(site):
    response = httpx.post(
        f"{site.url}/page/api/session",
        json={"key": site.plain},
        headers=MARK | {"x-forwarded-proto": "https"},
    )
    assert "; Secure" in response.headers["set-cookie"]


@pytest.mark.parametrize("key", ["fr-wrong", "x" * 513, "", 7, None])
def test_a_wrong_key_opens_nothing(site, key):
    response = httpx.post(f"{site.url}/page/api/session", json={"key": key}, headers=MARK)
    assert response.status_code in (400, 401)
    assert "set-cookie" not in response.headers


def test_an_api_key_is_not_a_session(site):
    bearer = {"authorization": f"Bearer {site.gateway.key}"}
    assert httpx.get(f"{site.url}/page/api/overview", headers=bearer).status_code == 401


def test_after_signing_out_the_cookie_is_worth_nothing(site):
    visitor = site.visitor()
    cookie = {"cookie": f"fedrouter_session={visitor.http.cookies['fedrouter_session']}"}
    assert httpx.get(f"{site.url}/page/api/overview", headers=cookie).status_code == 200
    assert visitor.http.delete("session").status_code == 200
    assert httpx.get(f"{site.url}/page/api/overview", headers=cookie).status_code == 401
    assert httpx.get(f"{site.url}/page/api/session", headers=cookie).json() is None


def test_a_disabled_key_has_no_session_any_more(site):
    identity, token = site.gateway.store.create_key("leaving")
    visitor = site.visitor(token)
    assert visitor.get("overview").status_code == 200
    site.gateway.store.disable_key(identity)
    assert visitor.get("overview").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
    ],
)
def test_requests_from_other_sites_are_refused(site, headers):
    visitor = site.visitor()
    assert visitor.post("feedback", {"decision_id": "a", "score": 1}, headers=headers).status_code == 403
    assert visitor.get("overview", headers=headers).status_code == 403


def test_a_form_of_another_site_lacks_the_header_that_changes_need(site):
    visitor = site.visitor()
    del visitor.http.headers["x-page-request"]
    assert visitor.post("feedback", {"decision_id": "a", "score": 1}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/page/api/session", "/page/nothing", "/page/api/nothing"])
def test_every_answer_forbids_frames_and_scripts_from_elsewhere(site, path):
    headers = httpx.get(site.url + path).headers
    policy = headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/page/../session.py", "/page/%2e%2e/session.py", "/page//etc/passwd", "/page/vendor"]
)
def test_only_the_page_s_own_files_are_served(site, path):
    assert httpx.get(f"{site.url}/page/{path}").status_code == 404


def test_files_are_compressed_and_revalidated(site):
    first = httpx.get(f"{site.url}/page/vendor/uplot.js", headers={"accept-encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"
    again = httpx.get(f"{site.url}/page/vendor/uplot.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_without_authentication_there_is_no_page(start, bundle, upstream, tmp_path):
    config = config_for(tmp_path, bundle, upstream.url)
    running = start(config.replace(server=config.server.replace(auth=False)))
    assert httpx.get(running.url + "/").status_code == 403
    assert httpx.post(f"{running.url}/page/api/session", json={"key": "any"}, headers=MARK).status_code == 403


def test_wrong_sign_ins_are_limited_and_sessions_go_on(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    with httpx.Client(base_url=gateway.url, headers=MARK) as visitor, httpx.Client(base_url=gateway.url) as stranger:
        assert visitor.post("/page/api/session", json={"key": gateway.key}).status_code == 200
        for number in range(200):  # more than the minute that passes meanwhile allows
            refused = stranger.post("/page/api/session", json={"key": f"fr-{number}"}, headers=MARK)
            if refused.status_code == 429:
                break
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_sign_ins")
        assert visitor.get("/page/api/overview").status_code == 200
