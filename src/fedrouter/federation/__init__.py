"""Learning across clients: what is asked of them and how their answers combine. Knows no network."""
