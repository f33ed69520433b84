"""Options of few contenders: policies, sockets, further files, periods, a progress line."""
