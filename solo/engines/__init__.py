"""Engines that keep a lock beyond one machine. Each is a module or package with the interface of
engine.py.
"""
