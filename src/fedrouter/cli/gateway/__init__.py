"""Commands for operators of a gateway: serve, learn, log, usage, key, bundle."""
