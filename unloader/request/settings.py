"""How people write sizes, durations, lists, masks, parts, clusters, routes and paths.

Every function takes text and returns plain values. Text that means nothing is a `ValueError`, whose
message is fit for the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from unloader.transforms.model import MASKS, Step
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

# The patterns are for editors, and describe the same units.
SIZE_PATTERN = rf"{_DIGITS}([kKmMgGtT]?[bB]?|[kKmMgGtT][iI][bB])\s*$"
COUNT_PATTERN = rf"{_DIGITS}[kKmMgG]?\s*$"
SECONDS_PATTERN = rf"{_DIGITS}([mM]?[sS]|[mM]|[mM][iI][nN]|[hH]|[dD])?\s*$"

MAX_PRODUCT = 2**63 - 1
"""Of sizes, counts and milliseconds: what C libraries take."""

MAX_NUMBER = 65_535
"""Of workers, CPUs and nodes: Linux has 8,192 CPUs at most. A range up to it fits into memory."""


ADAPTIVE = -1
"""The value for the word `adaptive`; 0 is the value for `auto`."""

CODECS = ("none", "gzip", "zstd", "lz4", "snappy")
PRESETS = ("fastest", "balanced", "smallest")
"""The presets of `writers.codecs.choice`, repeated so that a help page need not import it."""

PASSWORD_KEYS = ("password", "passwd", "passwort", "pwd", "pass", "secret", "token")

_NUMBER = re.compile(r"\s*([0-9][0-9_]*)(?:\.([0-9]+))?\s*([a-z]*)\s*", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\", "N": "\\N"}
"""`\\N` is kept: MySQL writes NULL so, and nothing else."""


def _whole(text: str, units: Mapping[str, int], what: str, how: str) -> int:
    product, scale = _product(text, units, what, how)
    if product % scale:
        raise ValueError(f"{text!r} is not {what}: it is not a whole number")
    return product // scale


def parse_size(text: str) -> int:
    """Return the bytes of `64MiB`, `4M`, `1.5GB` or `4096`; see `SIZE_UNITS`."""
    return _whole(text, SIZE_UNITS, "a size", "bytes, or a number with KiB, MiB, GiB, kB, MB or GB")


def parse_count(text: str) -> int:
    """Return the number of `200k`, `50M`, `1.5G` or `10_000_000` (k is 1000)."""
    return _whole(text, COUNT_UNITS, "a number", "digits, or digits with k, M or G")


def parse_seconds(text: str) -> float:
    """Return the seconds of `300`, `0.5`, `500ms`, `90s`, `5m`, `2h` or `1d`."""
    how = "seconds, or a number with ms, s, m, h or d"
    milliseconds, scale = _product(text, MILLISECONDS_UNITS, "a duration", how)
    return milliseconds / scale / 1000


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


def any_percent(text: str, *, positive: bool = False, below_100: bool = False) -> float:
    """Return the share of a percentage from 0 to 100; 0.75 is refused, since it may be a share."""
    match = re.fullmatch(r"\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*(%?)\s*", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a percentage; write for instance 5%")
    percent = float(match[1])
    if percent > 100:
        raise ValueError(f"{text} is more than 100 %")
    if 0 < percent <= 1 and not match[2]:
        raise ValueError(f"{text!r} may be a share; write {percent * 100:g}% or {percent:g}%")
    if below_100 and percent == 100:
        raise ValueError(f"{text} is not below 100 %")
    if positive and not percent:
        raise ValueError(f"{text} is not above 0 %")
    return percent / 100


parse_percent = partial(any_percent, below_100=True)


def percent_text(share: float) -> str:
    return f"{share * 100:.12g}%"


_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


def parse_hours(text: str) -> tuple[int, int]:
    """Return begin and end of `HH:MM-HH:MM`, in minutes from midnight."""
    match = _HOURS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not HH:MM-HH:MM, such as 08:00-18:00")
    hours = [int(part) for part in match.groups()]
    begin, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    if begin == end:
        raise ValueError(f"{text!r} begins and ends at the same time")
    return begin, end


def unescape(text: str) -> str:
    r"""Return the text with `\xHH`, `\t`, `\n`, `\r` and `\\` replaced by their characters."""

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
    """Return the items of `A,"b,c",D`, quotes kept, without blanks around items."""
    items = re.findall(r'\s*((?:"(?:[^"]|"")*"|[^,"])+)\s*(?:,|$)', text)
    joined = re.sub(r'"(?:[^"]|"")*"', "", text)
    if '"' in joined:
        raise ValueError(f"{text!r} has a double quote that is not closed")
    if len(items) != joined.count(",") + 1 or not all(item.strip() for item in items):
        raise ValueError(f"{text!r} has an empty item")
    return tuple(item.strip() for item in items)


def plain_name(name: str) -> str:
    quoted = len(name) > 1 and name.startswith('"') and name.endswith('"')
    return name[1:-1].replace('""', '"') if quoted else name


def plain_names(text: str) -> tuple[str, ...]:
    """Return the items between commas; an item in double quotes is the same as a plain one."""
    return tuple(map(plain_name, split_list(text)))


def parse_width(item: str) -> tuple[str, int]:
    """Return column and bytes of `COLUMN=BYTES`, quotes around the name kept."""
    name, equals, width = item.rpartition("=")
    name, width = name.strip(), width.strip()
    if not equals or not name:
        raise ValueError(f"{item!r} is not a width; write COLUMN=BYTES")
    if not re.fullmatch("[0-9]{1,9}", width) or not int(width):
        raise ValueError(f"{item!r} needs a number of bytes from 1")
    return name, int(width)


_NAMED = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^="][^=]*?))\s*=', re.DOTALL)


def parse_assignment(item: str) -> tuple[str, str]:
    """Return name and text of `NAME=TEXT`; a quoted name may have `=`. No error shows the text."""
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


_PAIR = re.compile(
    r'\s*([a-z0-9_-]+)\s*(?:=\s*(?:"((?:[^"]|"")*)"\s*|([^,"]*)))?(?:,|$)',
    re.DOTALL | re.IGNORECASE,
)
_KEY_PLACE = re.compile(
    r"(?:([a-z][a-z0-9-]{0,62})=)?((?:file|env|keyring|credential):\S.*)", re.DOTALL
)


def parse_mask(item: str) -> Step:
    """Return the mask that `COLUMN=METHOD,PARAMETER="VALUE with , and "" ",...` means."""
    column, text = parse_assignment(item)
    (method, chosen), *pairs = _pairs(
        text,
        f"the mask of {column} is not METHOD,PARAMETER=VALUE,...; put double quotes around a value "
        "with a comma or a quote",
    )
    methods = "use one of " + ", ".join(MASKS)
    if chosen is not None:
        raise ValueError(f"the mask of {column} does not begin with a method; {methods}")
    given: dict[str, str] = {}
    for name, value in pairs:
        if value is None or name in given:
            raise ValueError(f"the mask of {column} has {name} twice, or without a value")
        given[name] = value
    if method not in MASKS:
        raise ValueError(f"unknown mask {method!r}; {methods}")
    (_, *needed), optional = MASKS[method]
    names = (*needed, *optional)
    kinds = {each.name: each.type for each in fields(Step) if each.name in names}
    found: dict[str, Any] = {"step": method, "column": column}
    for name, value in given.items():
        if name not in kinds:
            listed = ", ".join(names) or "none"
            raise ValueError(f"the mask {method} has no parameter {name!r}; it has {listed}")
        kind = kinds[name]
        if get_origin(kind) is Literal and value not in get_args(kind):
            words = ", ".join(filter(None, get_args(kind)))
            raise ValueError(f"{name} of the mask {method} is one of {words}")
        if kind is int and not re.fullmatch("[0-9]{1,9}", value):
            raise ValueError(f"{name} of the mask {method} is a whole number")
        found[name] = int(value) if kind is int else value
    return Step(**found)


def _pairs(text: str, wrong: str) -> Iterator[tuple[str, str | None]]:
    """Yield the words between commas, each with its value or None; `wrong` is the error."""
    at = 0
    while at <= len(text):
        match = _PAIR.match(text, at)
        if match is None:
            raise ValueError(wrong)
        name, quoted, plain = match.groups()
        yield name, plain and plain.strip() if quoted is None else quoted.replace('""', '"')
        if match.end() == len(text) and not match[0].endswith(","):
            return
        at = match.end()


def parse_key_place(item: str) -> tuple[str, str]:
    """Return the name of a key, empty for the usual one, and its place. No error shows the text."""
    match = _KEY_PLACE.fullmatch(item.strip())
    if match is None:
        raise ValueError(
            "the value is not a place of a key, and is not shown; write file:PATH, env:VARIABLE, "
            "keyring:SERVICE/USER or credential:NAME, with NAME= before it if there are "
            "several keys"
        )
    return match[1] or "", match[2]


_ORDER = re.compile(
    r"""\s*("(?:[^"]|"")*"|\S+)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*""", re.IGNORECASE
)


def parse_order(text: str) -> SortColumn:
    """Return the meaning of `COLUMN [asc|desc] [nulls first|last]`; quotes are kept.

    By default NULLs come last, and with `desc` first, as in Oracle and PostgreSQL.
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


class PartitionBy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value by which the rows of a table are divided into partitions."""

    column: str
    transform: str = "identity"
    """The function of the column as Iceberg writes it: `day`, `truncate[4]`."""


def parse_partition(text: str) -> PartitionBy:
    """Return the meaning of `COLUMN`, `day(COLUMN)` or `truncate(4, COLUMN)`; quotes are kept."""
    match = _PARTITION.fullmatch(text)
    word, number, inner, plain = (part or "" for part in (match.groups() if match else ("",) * 4))
    if plain:
        return PartitionBy(column=plain)
    word = word.lower()
    if not word or (word in ("bucket", "truncate")) != (int(number or 0) > 0):
        raise ValueError(
            f"{text!r} is not a partition; write REGION, day(CREATED) or truncate(4, ID)"
        )
    return PartitionBy(column=inner, transform=f"{word}[{int(number)}]" if number else word)


def parse_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of `0,2-4` or `0-62:2` (every second one) in ascending order."""
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
    """Return a path that no shell has seen with a leading `~/` replaced, also in `pipe:~/x`."""
    prefix = "pipe:" if path.startswith("pipe:") else ""
    rest = path[len(prefix) :]
    if not rest.startswith("~"):
        return path
    if rest != "~" and not rest.startswith("~/"):
        raise ValueError(f"{path!r} means another user's home; write the path in full, or ./{rest}")
    home = os.path.expanduser("~") if os.environ.get("HOME") != "" else "~"
    if not os.path.isabs(home):
        raise ValueError(f"{path!r} needs a home directory, and HOME is not set")
    return prefix + home.rstrip("/") + rest[1:]


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several parts that the work units of a plan are divided into."""

    number: int
    """From 1."""
    of: int


INDEXES = {"SLURM_ARRAY_TASK_ID": 0, "JOB_COMPLETION_INDEX": 1, "AWS_BATCH_JOB_ARRAY_INDEX": 1}
"""Variables of Slurm arrays, indexed jobs of Kubernetes and array jobs of AWS Batch, each with the
number to add for a part. Slurm counts from a number that the user chooses, which must be 1: a task
that is submitted again keeps its number, but not the first one."""

PART_PATTERN = r"([0-9]+|auto)/[0-9]+"

PART_DIRECTORY = re.compile(r"part-[0-9]+-of-[0-9]+")
"""The names that `part_directory` gives."""


def parse_part(text: str) -> Part:
    """Return a part from `3/16`, or from `auto/16` with the number of a scheduler."""
    if re.fullmatch(PART_PATTERN, text.strip()) is None:
        raise ValueError(f"{text!r} is not a part: write 3/16, or auto/16 in a job array")
    written, _, of = text.strip().partition("/")
    what, add = "the part", 0
    if written == "auto":
        there = [name for name in INDEXES if os.environ.get(name, "").strip()]
        if len(there) != 1:
            raise ValueError(
                f"auto takes the number from a job array, and {'several' if there else 'none'} of "
                f"its variables {'are' if there else 'is'} set: {', '.join(there or INDEXES)}"
            )
        written, add = os.environ[there[0]].strip(), INDEXES[there[0]]
        if not re.fullmatch("[0-9]+", written):
            raise ValueError(f"{there[0]} is {written!r}, which is not a number")
        what = f"{there[0]} + 1" if add else there[0]
    number = int(written) + add
    if not 1 <= number <= int(of):
        raise ValueError(f"{what} is {number}, and the parts are 1 to {int(of)}")
    return Part(number=number, of=int(of))


def part_text(part: Part) -> str:
    return f"{part.number}/{part.of}"


def part_directory(part: Part) -> str:
    """Return the name of the directory of a part; the names of all parts sort by number."""
    return f"part-{part.number:0{len(str(part.of))}d}-of-{part.of}"


_LOCAL = re.compile(r"local:([1-9][0-9]{0,2})")
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.\-_]+):([0-9]{1,5})/?")


def parse_cluster(text: str) -> str:
    text = text.strip()
    if text == "none" or _LOCAL.fullmatch(text) or _ADDRESS.fullmatch(text):
        return text.rstrip("/")
    raise ValueError(
        f"{text!r} is not a cluster; write tcp://HOST:PORT, tls://HOST:PORT, local:N or none"
    )


def own_workers(address: str) -> int:
    """Return how many Dask workers are to be started here; 0 where there is a scheduler already."""
    found = _LOCAL.fullmatch(address)
    return int(found[1]) if found else 0


ROUTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

RouteText = tuple[str, tuple[tuple[str, str], ...]]
"""Name, and keys with their values."""

_ROUTE_FORM = "write NAME:KEY=VALUE,KEY=VALUE, and a value with a comma in double quotes"


def parse_route(text: str) -> RouteText:
    name, colon, rest = text.partition(":")
    if not colon or not ROUTE_NAME.fullmatch(name.strip()):
        raise ValueError(f"a route begins with its name and a colon; {_ROUTE_FORM}")
    name = name.strip()
    found: dict[str, str] = {}
    # The text is not shown: it may be a secret.
    wrong = f"route {name} cannot be read; {_ROUTE_FORM}"
    for written, value in _pairs(rest, wrong) if rest.strip() else ():
        key = written.replace("-", "_").lower()
        if value is None:
            raise ValueError(wrong)
        if key in found:
            raise ValueError(f"route {name} has the key {key.replace('_', '-')!r} twice")
        found[key] = value
    return name, tuple(found.items())


_REFUSED = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?= )""")
_NUMERIC = re.compile(r"[0-9\s.,:+-]{0,24}(?:[A-Za-z%]{1,3}|\s[a-z]{1,9})?")


def without_subject(message: str) -> str:
    """Return a message about a value, such as `'x' is not a number`, without the value.

    It may be a password. It is shown if it is a number, or very like a word that belongs there.
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
