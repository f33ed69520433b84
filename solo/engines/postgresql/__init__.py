"""The lock as entries of a table, or as advisory locks of sessions, in PostgreSQL."""
