"""Federations around a federation: validation, quorum, checkpoint, totals."""
