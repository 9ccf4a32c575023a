"""How the values of single options are written: workers, codecs, ends of lines, encodings."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from unloader.request import settings
from unloader.request.options.kinds import Parsed

if TYPE_CHECKING:
    from writers.model import Compression

MAX_WORKERS = 65536
"""More than any machine has CPUs (NR_CPUS of Linux is 8,192 at most)."""

CODECS = ("none", "gzip", "zstd", "lz4", "snappy")
PRESETS = ("fastest", "balanced", "smallest")
"""The presets of `writers.codecs.choice`, repeated so that a help page need not import it."""

END_OF_LINES = {"lf": "\n", "crlf": "\r\n"}


def _parallelism(text: str) -> int:
    if text.strip().lower() == "auto":
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not 1 <= int(text) <= MAX_WORKERS:
        raise ValueError(
            f"{text!r} is neither auto nor a number of workers from 1 to {MAX_WORKERS}"
        )
    return int(text)


ADAPTIVE = -1
"""The value for the word `adaptive`; 0 is the value for `auto`."""


def _run_parallelism(text: str) -> int:
    if text.strip().lower() == "adaptive":
        return ADAPTIVE
    try:
        return _parallelism(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither auto, adaptive nor a number of workers from 1 to {MAX_WORKERS}"
        ) from None


def _percent(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)\s*%?", text.strip())
    if match is None or not 1 <= float(match[1]) <= 100:
        raise ValueError(f"{text!r} is not a share from 1% to 100%; write for instance 75%")
    return float(match[1]) / 100


def _percent_or_none(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0%") else _percent(text)


def _hours(text: str) -> str:
    from unloader.request.settings import parse_hours

    parse_hours(text)
    return text.strip()


def _hours_or_none(text: str) -> str:
    return "never" if text.strip().lower() == "never" else _hours(text)


def percent_text(share: float) -> str:
    """Return a share as it is written."""
    return f"{share * 100:g}%"


def _parallelism_text(value: int) -> str:
    return {0: "auto", ADAPTIVE: "adaptive"}.get(value, str(value))


def _compression(text: str) -> Compression | str:
    from writers.model import Compression

    codec, colon, level = text.strip().lower().partition(":")
    if codec in PRESETS and not colon:
        return codec
    if codec not in CODECS:
        raise ValueError(f"{codec!r} is not one of {', '.join((*CODECS, *PRESETS))}")
    if not colon:
        return Compression(codec=codec)  # type: ignore[arg-type]
    if codec in ("none", "snappy"):
        raise ValueError(f"{codec} has no levels")
    try:
        return Compression(codec=codec, level=int(level))  # type: ignore[arg-type]
    except ValueError:
        raise ValueError(f"{level!r} is not a level; write for instance {codec}:3") from None


def _end_of_line(text: str) -> str:
    return END_OF_LINES.get(text.lower()) or settings.unescape(text)


def _encoding(text: str) -> str:
    try:
        return codecs.lookup(text).name
    except LookupError:
        raise ValueError(f"{text!r} is not a character encoding that Python knows") from None


def _mode(text: str) -> int:
    if not re.fullmatch("0?[0-7]{3}", text.strip()):
        raise ValueError("it is not a file mode; write three octal digits, such as 640")
    mode = int(text, 8)
    if not mode & 0o400:
        raise ValueError(f"{mode:03o} does not let the owner read; write for instance 640")
    return mode


def _owner_group(text: str) -> str:
    user, colon, group = text.strip().partition(":")
    if not re.fullmatch(r"[\w.@$\\-]*", user + group) or not (group if colon else user):
        raise ValueError("it is not USER, :GROUP or USER:GROUP")
    return text.strip()


PARALLELISM = Parsed(
    "N|auto", _parallelism, write=lambda value: str(value or "auto"), numbers=(int,)
)
RUN_PARALLELISM = Parsed(
    "N|auto|adaptive",
    _run_parallelism,
    write=_parallelism_text,
    numbers=(int,),
    pattern=r"^\s*(auto|adaptive|[0-9]{1,9})\s*$",
)
PERCENT = Parsed("PERCENT", _percent, write=percent_text, numbers=(int, float))
PERCENT_OR_NONE = Parsed("PERCENT", _percent_or_none, write=percent_text, numbers=(int, float))
HOURS = Parsed("HH:MM-HH:MM", _hours, pattern=r"^\s*[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}\s*$")
HOURS_OR_NONE = Parsed("HH:MM-HH:MM|never", _hours_or_none)
COMPRESSION = Parsed(
    "CODEC[:LEVEL]",
    _compression,
    pattern=rf"^\s*({'|'.join((*CODECS, *PRESETS))})(:-?[0-9]+)?\s*$",
)
END_OF_LINE = Parsed("lf|crlf|TEXT", _end_of_line)
ENCODING = Parsed("NAME", _encoding)
MODE = Parsed("OCTAL", _mode, write=lambda value: f"{value:03o}")
OWNER_GROUP = Parsed("[USER][:GROUP]", _owner_group)
