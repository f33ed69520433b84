"""What only some contenders ask for: policies, sockets, further files, periods, a progress line."""
