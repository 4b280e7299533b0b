"""Metrics, and judges that score answers in the background."""
