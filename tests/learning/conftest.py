"""Stores of both kinds, as the store's own tests have them."""

from store.conftest import database, url

__all__ = ["database", "url"]
