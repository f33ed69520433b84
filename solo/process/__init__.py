"""Processes: their trees, ends, namespaces and owners."""
