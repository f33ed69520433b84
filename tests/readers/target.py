"""Declare a target, expect a result, replace files in a module: shared by all targets."""

import os
import sys
import tempfile
from contextlib import contextmanager
from io import BytesIO
from operator import attrgetter
from pathlib import Path

from solo import identity
from solo.identity import Origin
from solo.modes import MODES

NUMBERS = (
    b"0|1|-1|4711|2147483647|2147483648|99999999999999999999|1e999|nan|inf|1_0|+5|" + b"9" * 400
)
ORIGIN = Origin("b-1", "4026531836", "4026531834", "host")
KERNELS = (ValueError, IndexError, KeyError)  # allowed for text that no kernel writes
TARGETS = {}


class Target:
    """The function `check_NAME`, with `make_NAME` and, if there is one, `trip_NAME` of the same
    module.
    """

    def __init__(self, check, share: float, words: bytes):
        self.check, self.share, self.words = check, share, words.split(b"|")
        self.name = check.__name__.removeprefix("check_")

    def make(self, rng) -> bytes:
        return self.check.__globals__[f"make_{self.name}"](rng)

    @property
    def trip(self):
        return self.check.__globals__.get(f"trip_{self.name}")


def fuzzed(share: float, words: bytes):
    """Declare a target: its part of the inputs, and pieces for mutations, separated by |."""

    def declare(check):
        declared = Target(check, share, words)
        TARGETS[declared.name] = declared
        return check

    return declare


def expect(truth, *what):
    """Assert, also under python -O."""
    if not truth:
        raise AssertionError(*what)


def same(one, other):
    expect(one == other, one, other)


def agree(one, other, fields: str):
    """Expect the same values of these attributes."""
    get = attrgetter(*fields.split())
    same(get(one), get(other))


def attempt(function, *values, may=()):
    """Return the result of the function, or the exception if it is one of `may`."""
    try:
        return function(*values)
    except may as error:
        return error


def expect_claim(claim, slot):
    """Expect a claim that a contender can have."""
    expect(
        claim.mode in MODES and 1 <= claim.take <= claim.slots, "an impossible claim", claim.mode
    )
    expect(all(0 <= first <= last for first, last in slot), "an impossible slot", slot)


class Wire(BytesIO):
    """A socket that receives these bytes, a few at a time, and then the end; each time again, if it
    `repeats`.
    """

    def __init__(self, data: bytes, size: int = 1000, repeats: bool = False):
        super().__init__(data)
        self.size, self.repeats = size, repeats

    def recv(self, size):
        return self.read(min(self.size, size))

    def sendall(self, _):
        self.seek(0 if self.repeats else self.tell())

    def settimeout(self, _):
        pass

    def close(self):
        self.seek(len(self.getvalue()))


@contextmanager
def swapped(module, **values):
    """Replace names of a module."""
    before = {key: module.__dict__[key] for key in values if key in module.__dict__}
    module.__dict__.update(values)
    try:
        yield
    finally:
        for key in values.keys() - before.keys():
            del module.__dict__[key]
        module.__dict__.update(before)


def read_from(data: bytes, function, *values, **others):
    """Call a function for which every file contains `data`: replace read_file in its module and in
    identity, and others.
    """
    module = sys.modules[function.__module__]
    read = {"read_file": lambda path, size=4096: data[:size]}
    with swapped(identity, **read), swapped(module, **read, **others):
        return function(*values)


shelf = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def put_into_file(data: bytes) -> str:
    """Write a private file, in /dev/shm if there is one. Return its path, the same for every
    call.
    """
    path = Path(shelf.name, "text")
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)
