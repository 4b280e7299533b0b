"""Work beside requests, and what one process of all on a store does: learning, and retention."""
