"""solo's real files in a simulated kernel: every interleaving of a few processes, with faults.
`make simulation`.
"""
