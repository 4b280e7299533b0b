"""A member's own router, made at home from the totals and its log."""

from __future__ import annotations


def make_router(directory, member):  # type: ignore[no-untyped-def]
    return "a total has arrived"
