"""Processes: their trees, ends and owners."""
