"""The program of an installation, one file, and its loader."""
