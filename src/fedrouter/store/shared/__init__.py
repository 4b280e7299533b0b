"""What all processes on a store agree on: budgets, rates, leases, conversations, settings and the current bundle."""
