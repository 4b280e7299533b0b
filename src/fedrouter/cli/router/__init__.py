"""Commands on a saved router."""
