"""What a client insists on: its policy, disclosure control, and the journal of what it sent."""
