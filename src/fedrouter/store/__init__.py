"""The store: the gateway's log of decisions, feedback, API keys and the current bundle, in SQLite or PostgreSQL."""
