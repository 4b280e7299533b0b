"""Secure aggregation: the protocol, its two sides, its cryptography."""
