"""Secure aggregation (Bell et al., 2020): both sides of the protocol, its graph and cryptography, vectors of sums."""
