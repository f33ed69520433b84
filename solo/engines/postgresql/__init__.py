"""PostgreSQL: entries in a table, or advisory locks of a session."""
