"""Secure aggregation (Bonawitz et al., 2017): both sides of the protocol, its cryptography, and vectors of sums."""
