"""Who may send requests, how many, and what they may spend."""
