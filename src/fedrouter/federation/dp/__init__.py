"""Differential privacy: mechanisms, accountant, and noisy answers."""
