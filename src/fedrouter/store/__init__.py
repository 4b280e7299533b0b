"""The store: the gateway's log of decisions, feedback, API keys and the current bundle, in SQLite or PostgreSQL."""

from fedrouter.store.records import STATUSES, BundleRow, Feedback, Key, Record, UsageRow, new_id

__all__ = ["STATUSES", "BundleRow", "Feedback", "Key", "Record", "UsageRow", "new_id"]
