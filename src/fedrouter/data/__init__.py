"""Data: readers of benchmark tables and evaluation logs, the simulated world, and partitions over clients."""
