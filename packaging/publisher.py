"""The maintainer and the address in every recipe: `publisher.py MAINTAINER URL` puts others there and here.

Without words, as `make lint` calls it, print a notice while they are placeholders.
"""

import sys
from pathlib import Path

MAINTAINER = "The solo maintainers <solo@example.org>"
URL = "https://example.org/solo"
HERE = Path(__file__).parent
RECIPES = [
    HERE / path
    for path in (
        "debian/control debian/copyright debian/changelog rpm/solo-run.spec arch/PKGBUILD alpine/APKBUILD"
    ).split()
]


def replace(maintainer: str, url: str):
    for path in [*RECIPES, Path(__file__)]:
        path.write_text(path.read_text().replace(MAINTAINER, maintainer).replace(URL, url))


if len(sys.argv) == 3:
    replace(*sys.argv[1:])
elif "example.org" in MAINTAINER + URL and __name__ == "__main__":
    print("notice: MAINTAINER and URL of packaging/publisher.py are placeholders")
