"""Experiments: the paper's protocol, one file for each of its figures and tables, and the runner."""
