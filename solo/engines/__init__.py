"""Who keeps the lock where one machine is outgrown: an existing engine, a module each behind the Protocol of engine.py. Cold."""
