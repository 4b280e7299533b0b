"""Parts of `scripts/loop.py`: organizations, gateways, traffic, measurements and the plot."""
