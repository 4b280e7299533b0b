"""Router families: estimation only; how they are learnt across clients is in :mod:`fedrouter.federation`."""
