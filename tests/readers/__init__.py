"""The readers of outside data, with generators of their input and checks of their results. TARGETS
lists them for fuzz.py.

A target `make`s valid text from a Random. `check` compares the reader, for any bytes, with a second
implementation or with invariants. `trip` converts a value to text and back, or damages the text. A
finding is an exception. Text that only the kernel or solo itself writes has no target, unless it
holds the name of a process, a file or a lock.
"""

from readers import crontabs, engines, journals, proc, records, sockets, stores, urls, words  # noqa: F401
from readers.target import TARGETS  # noqa: F401
