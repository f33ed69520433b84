"""The verdicts on a scene, from best to worst."""

from typing import NamedTuple


class Verdict(NamedTuple):
    name: str
    sign: str
    meaning: str


GOOD = Verdict("good", "✓", "good")
NOTE = Verdict("note", "~", "worth knowing")
BAD = Verdict("bad", "✗", "fails")
TWO = Verdict("two", "2", "two jobs ran at once")
NONE = Verdict("none", "–", "has no such mode")
UNKNOWN = Verdict("unknown", "?", "could not be measured here")
VERDICTS = {verdict.name: verdict for verdict in (GOOD, NOTE, BAD, TWO, NONE, UNKNOWN)}


class Outcome(NamedTuple):
    verdict: Verdict
    words: str

    def to_json(self):
        return {"verdict": self.verdict.name, "words": self.words}


def good(words):
    return Outcome(GOOD, words)


def note(words):
    return Outcome(NOTE, words)


def bad(words):
    return Outcome(BAD, words)
