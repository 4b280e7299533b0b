"""Commands of a federation across machines."""
