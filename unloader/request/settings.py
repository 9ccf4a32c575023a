"""How people write sizes, durations, lists, orders, levels, parts, clusters, routes and paths.

Every function takes text and returns plain values; what cannot be understood is a `ValueError`
whose message is fit for the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches

from msgspec import Struct

from writers.model import SortColumn

SIZE_UNITS: Mapping[str, int] = {
    "": 1,
    "b": 1,
    **{
        f"{letter}{end}": 1024**power
        for power, letter in enumerate("kmgt", 1)
        for end in ("", "ib")
    },
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
"""Bytes of each unit, in lower case: KiB and K are 1024, kB is 1000."""

COUNT_UNITS: Mapping[str, int] = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}

MILLISECONDS_UNITS: Mapping[str, int] = {
    "": 1000,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

_DIGITS = r"^\s*[0-9][0-9_]*(\.[0-9]+)?\s*"

SIZE_PATTERN = rf"{_DIGITS}([kKmMgGtT]?[bB]?|[kKmMgGtT][iI][bB])\s*$"
COUNT_PATTERN = rf"{_DIGITS}[kKmMgG]?\s*$"
SECONDS_PATTERN = rf"{_DIGITS}([mM]?[sS]|[mM]|[mM][iI][nN]|[hH]|[dD])?\s*$"
"""What editors hold sizes, counts and durations against; made for the same units."""

MAX_PRODUCT = 2**63 - 1
"""Of sizes, counts and milliseconds: what C libraries take."""

MAX_NUMBER = 65_535
"""Of a list of numbers: far beyond any NUMA node, and a range up to it still fits into memory."""

PASSWORD_KEYS = ("password", "passwd", "passwort", "pwd", "pass", "secret", "token")

_NUMBER = re.compile(r"\s*([0-9][0-9_]*)(?:\.([0-9]+))?\s*([a-z]*)\s*", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\", "N": "\\N"}
"""`\\N` stays as it is: it is how MySQL writes NULL and never anything else."""


def parse_size(text: str) -> int:
    """Return the bytes of `64MiB`, `4M`, `1.5GB` or `4096`.

    KiB MiB GiB TiB and K M G T count in 1024, kB MB GB TB in 1000; case does not matter.

    Raises:
        ValueError: Not a size, or not a whole number of bytes.
    """
    return _whole(text, SIZE_UNITS, "a size", "bytes, or a number with KiB, MiB, GiB, kB, MB or GB")


def parse_count(text: str) -> int:
    """Return the number of `200k`, `50M`, `1.5G` or `10_000_000` (k is 1000).

    Raises:
        ValueError: Not a count, or not a whole one.
    """
    return _whole(text, COUNT_UNITS, "a number", "digits, or digits with k, M or G")


def parse_seconds(text: str) -> float:
    """Return the seconds of `300`, `0.5`, `500ms`, `90s`, `5m`, `2h` or `1d`.

    Raises:
        ValueError: Not a duration.
    """
    how = "seconds, or a number with ms, s, m, h or d"
    milliseconds, scale = _product(text, MILLISECONDS_UNITS, "a duration", how)
    return milliseconds / scale / 1000


def parse_percent(text: str) -> float:
    """Return the share of `75%`, `75` or `2.5 %`, from 0 to below 1.

    Raises:
        ValueError: Not a number, or not from 0 to below 100, or it may be meant as a share.
    """
    share = any_percent(text)
    if share >= 1:
        raise ValueError(f"{text} is not below 100 %")
    return share


def any_percent(text: str) -> float:
    """Return the share of a percentage from 0 to 100.

    Raises:
        ValueError: It is not a percentage, or it may be meant as a share, such as 0.75.
    """
    match = re.fullmatch(r"\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*(%?)\s*", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a percentage; write for instance 5%")
    percent = float(match[1])
    if percent > 100:
        raise ValueError(f"{text} is more than 100 %")
    if 0 < percent <= 1 and not match[2]:
        raise ValueError(f"{text!r} may be a share; write {percent * 100:g}% or {percent:g}%")
    return percent / 100


def percent_text(share: float) -> str:
    """Return a share as percent."""
    return f"{share * 100:.12g}%"


_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


def parse_hours(text: str) -> tuple[int, int]:
    """Return begin and end of `HH:MM-HH:MM`, in minutes from midnight.

    Raises:
        ValueError: It is something else, or has no length.
    """
    match = _HOURS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not HH:MM-HH:MM, such as 08:00-18:00")
    hours = [int(part) for part in match.groups()]
    begin, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    if begin == end:
        raise ValueError(f"{text!r} begins and ends at the same time")
    return begin, end


def size_text(size: int) -> str:
    """Return a size as it is written, in the largest unit of 1024 that is exact."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)


def count_text(count: int) -> str:
    """Return a count as it is written, in the largest unit of 1000 that is exact."""
    for power, unit in ((3, "G"), (2, "M"), (1, "k")):
        if count and count % 1000**power == 0:
            return f"{count // 1000**power}{unit}"
    return str(count)


def _whole(text: str, units: Mapping[str, int], what: str, how: str) -> int:
    product, scale = _product(text, units, what, how)
    if product % scale:
        raise ValueError(f"{text!r} is not {what}: it is not a whole number")
    return product // scale


def _product(text: str, units: Mapping[str, int], what: str, how: str) -> tuple[int, int]:
    """Return number times unit exactly, as a whole number and the power of ten to divide it by."""
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[3].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not {what}; write {how}")
    fraction = match[2] or ""
    product = int(match[1].replace("_", "") + fraction) * factor
    if product > MAX_PRODUCT * 10 ** len(fraction):
        raise ValueError(f"{text!r} is too large to be {what}")
    return product, 10 ** len(fraction)


def unescape(text: str) -> str:
    r"""Return the text with `\xHH`, `\t`, `\n`, `\r` and `\\` replaced by their characters.

    Raises:
        ValueError: Any other escape but `\N`, which stays as it is.
    """

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 3:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            raise ValueError(
                rf"'\{code}' is not an escape; write \xHH, \t, \n, \r, or \\ for a backslash"
            )
        return _ESCAPES[code]

    return _ESCAPE.sub(character, text)


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of `A,"b,c",D`, quotes kept; blanks around items go.

    Raises:
        ValueError: An item is empty or a quote stays open.
    """
    items = re.findall(r'\s*((?:"(?:[^"]|"")*"|[^,"])+)\s*(?:,|$)', text)
    joined = re.sub(r'"(?:[^"]|"")*"', "", text)
    if '"' in joined:
        raise ValueError(f"{text!r} has a double quote that is not closed")
    if len(items) != joined.count(",") + 1 or not all(item.strip() for item in items):
        raise ValueError(f"{text!r} has an empty item")
    return tuple(item.strip() for item in items)


def parse_width(item: str) -> tuple[str, int]:
    """Return column and bytes of `COLUMN=BYTES`, quotes around the name kept.

    Raises:
        ValueError: It has another form, or the width is not a number of bytes from 1.
    """
    name, equals, width = item.rpartition("=")
    name, width = name.strip(), width.strip()
    if not equals or not name:
        raise ValueError(f"{item!r} is not a width; write COLUMN=BYTES")
    if not re.fullmatch("[0-9]{1,9}", width) or not int(width):
        raise ValueError(f"{item!r} needs a number of bytes from 1")
    return name, int(width)


_NAMED = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^="][^=]*?))\s*=', re.DOTALL)


def parse_assignment(item: str) -> tuple[str, str]:
    """Return name and text of `NAME=TEXT`; a name in double quotes may have `=` in it.

    Raises:
        ValueError: It has another form. The text after the name is not shown.
    """
    match = _NAMED.match(item)
    if match is None:
        raise ValueError(
            "it does not begin with NAME=; put double quotes around a name that is not plain"
        )
    quoted, plain = match.groups()
    text = item[match.end() :]
    name = plain if quoted is None else quoted.replace('""', '"')
    if not text.strip():
        raise ValueError(f"{name}= has no value")
    return name, text


_ORDER = re.compile(
    r"""\s*("(?:[^"]|"")*"|\S+)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*""", re.IGNORECASE
)


def parse_order(text: str) -> SortColumn:
    """Return what `COLUMN [asc|desc] [nulls first|last]` says; quotes are kept.

    By default NULLs come last, and with `desc` first, as in Oracle and PostgreSQL.

    Raises:
        ValueError: It is something else.
    """
    match = _ORDER.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not an order; write for instance DAY, ID desc or PRICE desc nulls last"
        )
    name, direction, nulls = (part or "" for part in match.groups())
    descending = direction.lower() == "desc"
    first = nulls.lower() == "first" if nulls else descending
    return SortColumn(name=name, descending=descending, nulls_first=first)


_PARTITION = re.compile(
    r"\s*(?:(year|month|day|hour|bucket|truncate)\s*\(\s*(?:(\d+)\s*,\s*)?([^\s,][^,]*?)\s*\)"
    r"|([^(),]+?|\"(?:[^\"]|\"\")*\"))\s*",
    re.IGNORECASE,
)
_WITH_A_NUMBER = ("bucket", "truncate")


class PartitionBy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value by which the rows of a table are divided into partitions."""

    column: str
    transform: str = "identity"
    """The function of the column as Iceberg writes it: `day`, `truncate[4]`."""


def parse_partition(text: str) -> PartitionBy:
    """Return what `COLUMN`, `day(COLUMN)` or `truncate(4, COLUMN)` says; quotes are kept.

    Raises:
        ValueError: It is something else.
    """
    match = _PARTITION.fullmatch(text)
    word, number, inner, plain = (part or "" for part in (match.groups() if match else ("",) * 4))
    if plain:
        return PartitionBy(column=plain)
    word = word.lower()
    if not word or (word in _WITH_A_NUMBER) != (int(number or 0) > 0):
        raise ValueError(
            f"{text!r} is not a partition; write REGION, day(CREATED) or truncate(4, ID)"
        )
    return PartitionBy(column=inner, transform=f"{word}[{int(number)}]" if number else word)


def parse_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of `0,2-4` or `0-62:2` (every second one) in ascending order.

    Raises:
        ValueError: Not a list of numbers and ranges, or one above `MAX_NUMBER`.
    """
    found: set[int] = set()
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+)(?::([1-9]\d*))?)?\s*", item)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise ValueError(f"{text!r} is not a list of numbers; write for instance 0,2-3")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last > MAX_NUMBER:
            raise ValueError(f"{text!r} is greater than {MAX_NUMBER}")
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def at_home(path: str) -> str:
    """Return a path with a leading `~/` replaced by the home directory, as a shell does it.

    For what no shell has seen: variables and job files. `pipe:~/x` is a path, too.

    Raises:
        ValueError: The home directory is not known, or another user's is meant.
    """
    for prefix in ("pipe:", ""):
        if path.startswith(prefix):
            rest = path[len(prefix) :]
            break
    if not rest.startswith("~"):
        return path
    if rest != "~" and not rest.startswith("~/"):
        raise ValueError(f"{path!r} means another user's home; write the path in full, or ./{rest}")
    home = os.path.expanduser("~") if os.environ.get("HOME") != "" else "~"
    if not os.path.isabs(home):
        raise ValueError(f"{path!r} needs a home directory, and HOME is not set")
    return prefix + home.rstrip("/") + rest[1:]


MOST_LEVELS = 1000
LARGEST_LEVEL = 65_535

_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})(?::([+-]?[0-9]{1,9}))?", re.ASCII)
_HOW = "write numbers and ranges with a step, such as 1,2,4 or 32..4:-4,3,2"


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the levels of `32..4:-4,3,2` in the order written, each once.

    A range has both its ends if the step leads there. Without a step it counts by one, down where
    the first end is the larger one.

    Raises:
        ValueError: An item is not a level or a range, or a step leads away from its end.
    """
    found: dict[int, None] = {}
    for item in text.split(","):
        for level in _levels(item.strip()):
            if not 1 <= level <= LARGEST_LEVEL:
                raise ValueError(f"{level} is not a number of workers from 1 to {LARGEST_LEVEL}")
            found[level] = None
            if len(found) > MOST_LEVELS:
                raise ValueError(f"there are more than {MOST_LEVELS} levels")
    return tuple(found)


def levels_text(levels: tuple[int, ...]) -> str:
    """Return levels as `parse_levels` reads them."""
    return ",".join(map(str, levels))


def _levels(item: str) -> range:
    if item.isascii() and item.isdigit() and len(item) < 10:
        return range(int(item), int(item) + 1)
    match = _RANGE.fullmatch(item)
    if match is None:
        what = f"{item!r} is not a level" if item else "a level is empty"
        raise ValueError(f"{what}; {_HOW}")
    first, last = int(match[1]), int(match[2])
    direction = -1 if last < first else 1
    step = direction if match[3] is None else int(match[3])
    if step * direction <= 0:
        right = f"{first}..{last}:{direction * (abs(step) or 1):+d}"
        raise ValueError(f"the step of {item} does not lead from {first} to {last}; write {right}")
    return range(first, last + direction, step)


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several parts that the work units of a plan are divided into."""

    number: int
    """From 1."""
    of: int


INDEXES = {
    "SLURM_ARRAY_TASK_ID": 0,
    "JOB_COMPLETION_INDEX": 1,
    "AWS_BATCH_JOB_ARRAY_INDEX": 1,
}
"""Variables of Slurm arrays, indexed jobs of Kubernetes and array jobs of AWS Batch, each with the
number to add for a part. The last two count from 0. Slurm counts from a number that the user
chooses. A task that is submitted again keeps its number, but not the first number, so the first
must be 1."""

PART_PATTERN = r"([0-9]+|auto)/[0-9]+"

PART_DIRECTORY = re.compile(r"part-[0-9]+-of-[0-9]+")
"""The names that `part_directory` gives."""

_PART = re.compile(r"(?P<number>[0-9]+|auto)/(?P<of>[0-9]+)")


def parse_part(text: str, environment: Mapping[str, str] | None = None) -> Part:
    """Return a part from `3/16`, or from `auto/16` with the number of a scheduler.

    Args:
        text: As the user wrote it.
        environment: Where the scheduler's variables are; None is the environment of this process.

    Raises:
        ValueError: It is not a part, or no scheduler gives its number.
    """
    found = _PART.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a part: write 3/16, or auto/16 in a job array")
    of = int(found["of"])
    if found["number"] != "auto":
        number, what = int(found["number"]), "the part"
    else:
        number, what = _index(os.environ if environment is None else environment)
    if not 1 <= number <= of:
        raise ValueError(f"{what} is {number}, and the parts are 1 to {of}")
    return Part(number=number, of=of)


def part_text(part: Part) -> str:
    """Return a part as a user writes it."""
    return f"{part.number}/{part.of}"


def _index(environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the number of the part from a scheduler, and its name in messages."""
    there = [name for name in INDEXES if environment.get(name, "").strip()]
    if len(there) != 1:
        known = ", ".join(there or INDEXES)
        raise ValueError(
            f"auto takes the number from a job array, and {'several' if there else 'none'} of its "
            f"variables {'are' if there else 'is'} set: {known}"
        )
    (name,) = there
    text = environment[name].strip()
    if not re.fullmatch("[0-9]+", text):
        raise ValueError(f"{name} is {text!r}, which is not a number")
    what = f"{name} + 1" if INDEXES[name] else name
    return int(text) + INDEXES[name], what


def part_directory(part: Part) -> str:
    """Return the name of the directory of a part; the names of all parts sort by number."""
    return f"part-{part.number:0{len(str(part.of))}d}-of-{part.of}"


LOCAL = re.compile(r"local:([1-9][0-9]{0,2})")
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.\-_]+):([0-9]{1,5})/?")
FORMS = "tcp://HOST:PORT, tls://HOST:PORT, local:N or none"


def parse_cluster(text: str) -> str:
    """Return a cluster as it is named.

    Raises:
        ValueError: It is not.
    """
    text = text.strip()
    if text == "none" or LOCAL.fullmatch(text) or _ADDRESS.fullmatch(text):
        return text.rstrip("/")
    raise ValueError(f"{text!r} is not a cluster; write {FORMS}")


def own_workers(address: str) -> int:
    """Return how many Dask workers are to be started here; 0 where there is a scheduler already."""
    found = LOCAL.fullmatch(address)
    return int(found[1]) if found else 0


ROUTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

RouteText = tuple[str, tuple[tuple[str, str], ...]]
"""Name, and keys with their values."""

_PAIR = re.compile(r'\s*([A-Za-z][A-Za-z_-]*)\s*=\s*(?:"((?:[^"]|"")*)"|([^,"]*))\s*(,|$)')
_ROUTE_FORM = "write NAME:KEY=VALUE,KEY=VALUE, and a value with a comma in double quotes"


def parse_route(text: str) -> RouteText:
    """Return name and values of a route.

    Raises:
        ValueError: It is not a route; the message is fit for the user.
    """
    name, colon, rest = text.partition(":")
    if not colon or not ROUTE_NAME.fullmatch(name.strip()):
        raise ValueError(f"a route begins with its name and a colon; {_ROUTE_FORM}")
    name = name.strip()
    found: dict[str, str] = {}
    at = 0
    while at < len(rest):
        pair = _PAIR.match(rest, at)
        if pair is None:
            # The text is not shown: it may be a secret.
            raise ValueError(
                f"route {name} cannot be read from character {at + 1} on; {_ROUTE_FORM}"
            )
        key, quoted, plain, end = pair.groups()
        key = key.replace("-", "_").lower()
        if key in found:
            raise ValueError(f"route {name} has the key {key.replace('_', '-')!r} twice")
        found[key] = plain.strip() if quoted is None else quoted.replace('""', '"')
        at = pair.end()
        if end == "," and at == len(rest):
            raise ValueError(f"route {name} ends with a comma; {_ROUTE_FORM}")
    return name, tuple(found.items())


_REFUSED = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?= )""")
_NUMERIC = re.compile(r"[0-9\s.,:+-]{0,24}(?:[A-Za-z%]{1,3}|\s[a-z]{1,9})?")


def without_subject(message: str) -> str:
    """Return a message about a value, such as `'x' is not a number`, without the value.

    The value may be a password. It is shown only if it is a number or very like a word that
    belongs there.
    """
    subject = _REFUSED.match(message)
    if subject is None:
        return message
    text, rest = subject[1][1:-1], message[subject.end() :]
    belonging = re.findall(r"[a-z0-9][a-z0-9-]{2,}", rest.lower())
    known = len(text) < 4 or _NUMERIC.fullmatch(text) is not None
    if known or get_close_matches(text.lower(), belonging, n=1, cutoff=0.75):
        return message
    return f"the value{rest}"
