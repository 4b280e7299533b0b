"""A client's privacy: its policy, disclosure control, access to its rows, and the journal of what it sent."""
