"""The journals, read and rotated."""
