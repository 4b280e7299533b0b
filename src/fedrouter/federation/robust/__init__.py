"""Robust aggregation: caps, winsorized sums, trimmed updates."""
