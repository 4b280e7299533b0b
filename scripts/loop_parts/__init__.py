"""What `scripts/loop.py` is made of: organizations, gateways, traffic, what was measured, and a picture of it."""
