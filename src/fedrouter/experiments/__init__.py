"""Experiments: the paper's protocol, and one file for each of its figures and tables."""
