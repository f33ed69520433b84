"""The verdicts on a scene, from best to worst, and their display: a sign as well as a colour."""

from typing import NamedTuple


class Verdict(NamedTuple):
    name: str
    sign: str
    colour: str  # of its cell; the sign on it is dark, but white on red
    meaning: str


GOOD = Verdict("good", "✓", "#c8e6c9", "good")
NOTE = Verdict("note", "~", "#fff3c4", "worth knowing")
BAD = Verdict("bad", "✗", "#ffcc99", "fails")
TWO = Verdict("two", "2", "#c62828", "two jobs ran at once")
NONE = Verdict("none", "–", "#eceff1", "has no such mode")
UNKNOWN = Verdict("unknown", "?", "#ffffff", "could not be measured here")
VERDICTS = {verdict.name: verdict for verdict in (GOOD, NOTE, BAD, TWO, NONE, UNKNOWN)}


class Outcome(NamedTuple):
    verdict: Verdict
    words: str


def good(words):
    return Outcome(GOOD, words)


def note(words):
    return Outcome(NOTE, words)


def bad(words):
    return Outcome(BAD, words)
