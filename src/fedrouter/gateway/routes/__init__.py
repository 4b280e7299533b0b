"""Endpoints, one file each."""
