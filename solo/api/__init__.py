"""The lock for Python programs: loaded by `import solo` when first asked for."""
