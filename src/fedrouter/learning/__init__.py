"""Learning from the log: exploration, judging a router on old traffic, folding scored requests in, judges."""
