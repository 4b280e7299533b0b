"""Work beside requests that one process of all on a store does: learning, and retention."""
