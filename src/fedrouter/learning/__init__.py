"""Learning from the gateway's log: exploration, off-policy evaluation, judges."""
