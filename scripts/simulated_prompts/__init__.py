"""Templates of the twelve task families from which the simulated prompts are generated."""
