"""Routers: estimation only, in numpy. How each family is learned is in :mod:`fedrouter.federation.families`."""
