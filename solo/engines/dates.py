"""Times in the texts of HTTP and of JSON. datetime takes 3 ms to load, email.utils 8."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
LAST_YEAR = 9999


def parse_http_date(text: str) -> float:
    """Return the seconds since the epoch of `Mon, 23 Nov 2026 05:47:03 GMT`. Raises ValueError."""
    _, day, month, year, clock, zone = text.split()
    at = MONTHS.find(month)
    if zone != "GMT" or len(month) != 3 or at < 0 or at % 3:
        raise ValueError("not a date of HTTP")
    return count_seconds(year, at // 3 + 1, day, clock)


def find_http_date(headers: "Mapping[str, str]") -> "float | None":
    """Return the time of the Date header, in the middle of its second; None without one that we can parse."""
    try:
        return parse_http_date(headers.get("Date", "")) + 0.5
    except ValueError:
        return None


def parse_date(text: str) -> float:
    """Return the seconds since the epoch of `2026-11-23T05:47:03Z`, or with `+00:00` or a fraction. Raises ValueError."""
    day, t, clock = text.partition("T")
    for zone in ("Z", "+00:00"):
        if clock.endswith(zone):
            year, month, day = day.split("-")
            return count_seconds(year, read_number(month), day, clock[: -len(zone)].partition(".")[0])
    raise ValueError("not a date in UTC")


def count_seconds(year: str, month: int, day: str, clock: str) -> float:
    hour, minute, second = map(read_number, clock.split(":"))
    years, days = read_number(year), read_number(day)
    if not (1970 <= years <= LAST_YEAR and 1 <= month <= 12 and 1 <= days <= 31):
        raise ValueError("no such day")
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError("no such time")
    # Years begin in March, so that the leap day is their last.
    years, month = (years, month - 3) if month > 2 else (years - 1, month + 9)
    days += 365 * years + years // 4 - years // 100 + years // 400 + (153 * month + 2) // 5 - 719469
    return days * 86400.0 + hour * 3600 + minute * 60 + second


def read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise ValueError("not a number of a date")
    return int(text)
