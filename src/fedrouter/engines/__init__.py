"""Engines: implementations of a federation."""
