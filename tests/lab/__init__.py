"""What goes wrong with whom: the wrappers of Debian, and solo, through one set of scenes, with real processes.

A wrapper is known only as words put before a job; asked is only what can be seen from outside. `python -m lab` measures all of it.
"""
