"""How the alternatives fail: run Debian's lock wrappers and solo through one set of scenes, with
real processes.

The lab knows a wrapper only as words before a job and observes it only from outside. `python -m
lab` measures everything.
"""
