"""Importers: logs of other tools become evaluation logs, one tool a file."""
