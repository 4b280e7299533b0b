"""Data: readers of benchmark tables and evaluation logs, the simulated world, partitions over clients."""
