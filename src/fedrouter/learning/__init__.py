"""Learning from the gateway's log: evidence, versions, exploration, the promise, judges, drift."""
