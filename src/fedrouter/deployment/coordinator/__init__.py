"""The coordinator process: a Flower SuperLink that admits only enrolled clients."""
