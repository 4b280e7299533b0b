"""The batched engine: many clients of this process trained or clustered in one computation, on the CPU or on a GPU."""
