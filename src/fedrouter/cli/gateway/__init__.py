"""Commands for operators of a gateway: serve, log, usage, key, bundle."""
