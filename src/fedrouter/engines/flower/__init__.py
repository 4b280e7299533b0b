"""The engine over Flower: the only package, with the launcher, that imports Flower."""
