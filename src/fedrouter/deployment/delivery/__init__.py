"""Delivery of accepted bundles: the coordinator offers them on its one port, enrolled clients pull them."""
