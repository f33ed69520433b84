"""Text for people: descriptions, tables, hints."""
