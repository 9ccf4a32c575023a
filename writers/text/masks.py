"""Oracle datetime format masks: what each element says, and its text.

Source of truth: Oracle Database SQL Language Reference, "Datetime Format Models". Names are English
and weeks start on Sunday (NLS_TERRITORY AMERICA). Years follow the proleptic Gregorian calendar, as
Arrow and ISO 8601 have them; Oracle itself switches to the Julian calendar before 1582-10-15. A
year before 1 is written only by elements that can tell it apart: SYYYY, or YYYY beside an era (BC).

A mask may leave out digits of a fraction, or all of it (FF3, or no FF): that is what its author
asked for. Nothing else is cut.
"""

from __future__ import annotations

import string
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from writers.errors import FormatError

ERAS = frozenset({"AD", "BC", "A.D.", "B.C."})
_MERIDIANS = frozenset({"AM", "PM", "A.M.", "P.M."})

GROUPS: dict[str, str] = {
    **dict.fromkeys(("YYYY", "SYYYY", "YYY", "YY", "Y", "RR", "RRRR", *ERAS, "ISO-YEAR"), "year"),
    "ISO-ERA": "year",
    **dict.fromkeys(("IYYY", "IYY", "IY", "I"), "isoyear"),
    **dict.fromkeys(("MM", "MON", "MONTH", "DD", "Q", "W"), "monthday"),
    **dict.fromkeys(("DDD", "WW"), "yearday"),
    **dict.fromkeys(("D", "DAY", "DY"), "weekday"),
    "IW": "isoweek",
    **dict.fromkeys(("HH24", "HH12", "HH", "MI", *_MERIDIANS), "minute"),
    "SS": "second",
    "SSSSS": "daysecond",
    "FF": "fraction",
    "ISO-FRACTION": "fraction",
    "J": "julian",
    **dict.fromkeys(("TZH", "TZM", "ISO-OFFSET"), "offset"),
    "TZR": "zone",
}
"""Each element and the one number its text depends on; ISO- elements cannot be written in a mask.

year: the astronomical year (0 is 1 BC). monthday: day of a year that begins on March 1, from 0.
yearday: the same from January 1. weekday: 0 is Sunday. minute, second, daysecond: of the day, of
the minute, of the day, from 0. offset: seconds east of UTC.
"""
DOMAINS: dict[str, tuple[int, int]] = {
    "monthday": (0, 365),
    "yearday": (0, 365),
    "weekday": (0, 6),
    "isoweek": (1, 53),
    "minute": (0, 1440),
    "second": (0, 59),
}
"""First and last number of the groups that have few; minute 1440 is the time 24:00."""
_NAMES = sorted(
    (name for name in GROUPS if not name.startswith("ISO-") and name != "FF"), key=len, reverse=True
)
_PUNCTUATION = frozenset(string.punctuation + " ") - {'"'}
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MARCH_BASED = tuple(
    (month, day + 1)
    for month, days in zip(
        (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2),
        (31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29),
        strict=True,
    )
    for day in range(days)
)
"""Month and day by the day of a year that begins on March 1, so that February 29 is the last."""


class Element(Struct, frozen=True, kw_only=True):
    """One element of a mask, or a literal text between two."""

    kind: str
    """A key of GROUPS, or "text"."""
    text: str = ""
    """The literal, or the element as its author spelled it: its case decides the case of names."""
    fill: bool = True
    """Pad with zeros and blanks; FM turns it off."""
    digits: int | None = None
    """Of FF1 to FF9; None takes as many as the column's unit has."""


class Mask(Struct, frozen=True, kw_only=True):
    elements: tuple[Element, ...]

    @property
    def has_zone(self) -> bool:
        return any(GROUPS.get(e.kind) in ("offset", "zone") for e in self.elements)

    @property
    def has_era(self) -> bool:
        """Whether a year before 1 differs from one after."""
        return any(e.kind in ERAS or e.kind == "ISO-ERA" for e in self.elements)

    @property
    def fraction_digits(self) -> int:
        """Digits of a second's fraction that it can show; 9 where it shows all there are."""
        shown = [e for e in self.elements if GROUPS.get(e.kind) == "fraction"]
        return max((9 if e.digits is None else e.digits for e in shown), default=0)

    def alphabet(self) -> frozenset[str] | None:
        """Return every character its texts can have; None when that depends on the column."""
        letters: set[str] = set(string.digits)
        for element in self.elements:
            if element.kind == "text":
                letters |= set(element.text)
            elif element.kind == "TZR":
                return None
            elif GROUPS[element.kind] in ("offset", "fraction") or element.kind == "SYYYY":
                letters |= set("+-:. ")
            elif element.kind == "ISO-ERA" or not element.kind.isalpha():
                letters |= set(string.ascii_letters + ". ")
            elif element.kind in ("MON", "MONTH", "DAY", "DY", "AD", "BC", "AM", "PM"):
                letters |= set(string.ascii_letters + " ")
        return frozenset(letters)


@lru_cache(maxsize=64)
def parse(mask: str) -> Mask:
    """Return the elements from left to right; FormatError names an unknown one by position."""
    elements: list[Element] = []
    position, fill = 0, True
    while position < len(mask):
        rest = mask[position:]
        if rest[:2].upper() == "FM":
            fill = not fill
            position += 2
            continue
        element, length = _next_element(mask, position)
        elements.append(replace(element, fill=fill))
        position += length
    if not elements:
        raise FormatError("a date format is empty.", "give one such as YYYY-MM-DD.")
    return Mask(elements=tuple(elements))


def _next_element(mask: str, position: int) -> tuple[Element, int]:
    rest = mask[position:]
    upper = rest.upper()
    if rest[0] == '"':
        end = rest.find('"', 1)
        if end < 0:
            raise _unknown(mask, position, "a quoted text without an end")
        return Element(kind="text", text=rest[1:end]), end + 1
    if upper.startswith("Y,YYY"):
        raise _unknown(mask, position, "the unsupported element 'Y,YYY'")
    if upper.startswith("FF"):
        digits = int(rest[2]) if rest[2:3] in tuple("123456789") else None
        return Element(kind="FF", digits=digits), 2 if digits is None else 3
    for name in _NAMES:
        if upper.startswith(name):
            return Element(kind=name, text=rest[: len(name)]), len(name)
    if upper[0] == "X":
        return Element(kind="text", text="."), 1
    if rest[0] in _PUNCTUATION:
        return Element(kind="text", text=rest[0]), 1
    raise _unknown(mask, position, f"the unknown element {rest[:8]!r}")


def _unknown(mask: str, position: int, what: str) -> FormatError:
    return FormatError(
        f"the date format {mask!r} has {what} at position {position + 1}.",
        "correct it, or put text that is to appear unchanged into double quotes.",
    )


def element_text(element: Element, number: int, era: bool) -> str:
    """Return the text of an element for the number its group depends on (`GROUPS`).

    Not for the groups fraction, julian, daysecond and zone. With `era` the mask has one, so that a
    year before 1 is counted backwards.
    """
    kind, group, fill = element.kind, GROUPS.get(element.kind, "text"), element.fill
    if group == "text":
        return element.text
    if group == "year":
        return _year_text(element, number, era)
    if group == "isoyear":
        return _number(number % 10 ** len(kind), len(kind), fill)
    if group == "monthday":
        month, day = _MARCH_BASED[number]
        if kind in ("MON", "MONTH"):
            name = _MONTHS[month - 1]
            return _name(name[:3] if kind == "MON" else name, element)
        numbers = {"MM": (month, 2), "DD": (day, 2), "Q": ((month + 2) // 3, 1)}
        return _number(*numbers.get(kind, ((day + 6) // 7, 1)), fill)
    if group == "yearday":
        return _number(number + 1, 3, fill) if kind == "DDD" else _number(number // 7 + 1, 2, fill)
    if group == "weekday":
        if kind == "D":
            return str(number + 1)
        return _name(_DAYS[number][:3] if kind == "DY" else _DAYS[number], element)
    if group == "minute":
        hour = number // 60
        if kind in _MERIDIANS:
            name = "AM" if hour < 12 else "PM"
            return _cased(f"{name[0]}.M." if "." in kind else name, element.text)
        shown = {"HH24": hour, "MI": number % 60}.get(kind, (hour + 11) % 12 + 1)
        return _number(shown, 2, fill)
    if group == "offset":
        sign = "-" if number < 0 else "+"
        hours, rest = divmod(abs(number), 3600)
        if kind == "TZH":
            return f"{sign}{hours:02}"
        if kind == "TZM":
            return f"{rest // 60:02}"
        # Local mean times before the zones were unified have seconds too.
        return f"{sign}{hours:02}:{rest // 60:02}" + (f":{rest % 60:02}" if rest % 60 else "")
    return _number(number, 2, fill)


def _year_text(element: Element, year: int, era: bool) -> str:
    kind = element.kind
    if kind == "ISO-ERA":
        return "" if year > 0 else " BC"
    if kind in ERAS:
        dots = "." in kind
        name = ("A.D." if dots else "AD") if year > 0 else ("B.C." if dots else "BC")
        return _cased(name, element.text)
    counted = year if year > 0 else 1 - year
    if kind == "ISO-YEAR":
        return f"{counted:04}"
    if kind == "SYYYY":
        sign = "-" if year <= 0 else " " if element.fill else ""
        return sign + _number(counted, 4, element.fill)
    width = {"RRRR": 4, "RR": 2}.get(kind, len(kind))
    return _number(counted % 10**width, width, element.fill)


def _number(value: int, width: int, fill: bool) -> str:
    return f"{value:0{width}}" if fill else str(value)


def _name(name: str, element: Element) -> str:
    padded = name.ljust(9) if element.fill and element.kind in ("MONTH", "DAY") else name
    return _cased(padded, element.text)


def _cased(name: str, spelling: str) -> str:
    """Give a name the case of its element: MON, Mon or mon."""
    letters = [character for character in spelling if character.isalpha()]
    if letters[0].islower():
        return name.lower()
    return name.upper() if letters[1].isupper() else name.capitalize()


def _iso(*parts: str) -> Mask:
    return Mask(
        elements=tuple(
            Element(kind=part if part in GROUPS else "text", text=part) for part in parts
        )
    )


_DATE = ("ISO-YEAR", "-", "MM", "-", "DD")
_TIME = ("HH24", ":", "MI", ":", "SS", "ISO-FRACTION")
ISO_DATE = _iso(*_DATE, "ISO-ERA")
ISO_TIME = _iso(*_TIME)
ISO_TIMESTAMP = _iso(*_DATE, " ", *_TIME, "ISO-ERA")
ISO_TIMESTAMP_TZ = _iso(*_DATE, " ", *_TIME, "ISO-OFFSET", "ISO-ERA")
"""The forms that PostgreSQL prints, except that the offset always has minutes."""
