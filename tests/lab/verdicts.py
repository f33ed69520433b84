"""The verdicts on a scene, from best to worst."""

from functools import partial
from typing import NamedTuple

GOOD, NOTE, BAD, TWO, NONE, UNKNOWN = "good", "note", "bad", "two", "none", "unknown"
VERDICTS = {  # their sign and meaning
    GOOD: ("✓", "good"),
    NOTE: ("~", "worth knowing"),
    BAD: ("✗", "fails"),
    TWO: ("2", "two jobs ran at once"),
    NONE: ("–", "has no such mode"),
    UNKNOWN: ("?", "could not be measured here"),
}


class Outcome(NamedTuple):
    verdict: str
    words: str


good, note, bad = (partial(Outcome, verdict) for verdict in (GOOD, NOTE, BAD))
