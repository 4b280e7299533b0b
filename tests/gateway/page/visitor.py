"""A client of the page's API that signs in as a browser does."""

import httpx2 as httpx

MARK = {"x-page-request": "1"}


class Visitor:
    """A session of one key; every request carries the cookie and the page's header."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(base_url=f"{url}/page/api/", headers=MARK, timeout=60)
        self.signed_in = self.http.post("session", json={"key": key})

    def get(self, path: str, **more):
        return self.http.get(path, **more)

    def post(self, path: str, body=None, **more):
        return self.http.post(path, json=body or {}, **more)

    def put(self, path: str, body=None, **more):
        return self.http.put(path, json=body or {}, **more)
