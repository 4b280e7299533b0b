"""What `scripts/loop.py` is made of: organisations, gateways, traffic, what was measured, and a picture of it."""
