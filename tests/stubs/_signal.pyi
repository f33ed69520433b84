"""typeshed has no stub for the C module below signal, which the files in solo/ import: it loads faster."""

from signal import *  # noqa: F403
from signal import default_int_handler as default_int_handler
from signal import struct_siginfo as struct_siginfo
