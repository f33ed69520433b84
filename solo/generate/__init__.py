"""Generated files: the program of an installation and its loader, completions, tables of the
manual.
"""
