"""Router families: estimation only; how they are learned across clients is in :mod:`fedrouter.federation`."""
