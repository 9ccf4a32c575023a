"""Options on how the points of a sweep are made and measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from unloader.request.levels import levels_text, parse_levels
from unloader.request.options import machine, output, running
from unloader.request.options.kinds import SECONDS, Choice, Kind, Parsed, PathText, Whole
from unloader.request.options.option import Option
from unloader.request.settings import any_percent, percent_text

SECTION = "Points"

_point = partial(Option, section=SECTION, commands=("sweep",), effect="unrecorded")


class Several(Kind):
    """Values of another kind, separated by commas."""

    lists = True

    def __init__(self, of: Kind) -> None:
        """Take the kind of each value."""
        super().__init__(f"{of.shown},...")
        self._of = of
        self.takes = of.takes
        self.expected = f"{of.expected}, or a list"

    def read(self, value: Any) -> tuple[Any, ...]:
        """Return the values in the order written, each once."""
        if isinstance(value, tuple):
            return value
        items = value if isinstance(value, list) else str(value).split(",")
        return tuple(dict.fromkeys(self._one(str(item).strip()) for item in items))

    def write(self, value: Any) -> str:
        """Return one value, or several, as a user would write them."""
        values = value if isinstance(value, tuple) else (value,)
        return ",".join(map(self._of.write, values))

    def _one(self, item: str) -> Any:
        if isinstance(self._of, Choice) and item not in self._of.choices:
            raise ValueError(f"{item!r} is not one of {', '.join(self._of.choices)}")
        return self._of.read(item)


def share(text: str) -> float:
    """Return the share of a text such as `5%` or `5`.

    Raises:
        ValueError: It is not a percentage above 0 and up to 100.
    """
    found = any_percent(text)
    if not found:
        raise ValueError(f"{text} is not above 0 %")
    return found


SHARE = Parsed("PERCENT", share, write=percent_text, numbers=(int, float))

AXES = ("format", "compression", "fetch-memory", "overlap-buffer", "numa", "placement")
"""Options that a sweep may vary beside parallelism; all others are the same for all points."""


def _declared() -> dict[str, Option]:
    options = (*output.OPTIONS, *running.SPEED, *machine.OPTIONS)
    return {each.name: each for each in options if "run" in each.commands}


def _axis(name: str) -> Option:
    one = _declared()[name]
    return replace(
        one,
        kind=Several(one.kind),
        commands=("sweep",),
        default=None if one.initial is None else (one.initial,),
        metavar="",
        common=False,
        section=SECTION,
        help=(f"{one.help} Several values are measured one after another."),
    )


_write_levels: Callable[[Any], str] = levels_text

OPTIONS = (
    _point(
        name="parallelism",
        kind=Parsed("LEVELS", parse_levels, write=_write_levels, numbers=(int,)),
        default_text="1, 2, 4 and so on up to the usable cores",
        help="Numbers of workers to measure. Write for instance 1,2,4 or 32..4:-4,3,2.",
        common=True,
    ),
    *map(_axis, AXES),
    _point(
        name="repeats",
        kind=Whole(1, 100),
        default=3,
        help=(
            "Measurements of each point. All points are measured once, in a random order, before "
            "the next round."
        ),
    ),
    _point(
        name="max-spread",
        kind=SHARE,
        default=0.1,
        help=(
            "Measure a point again, up to twice --repeats, if its speeds differ by more than this "
            "share of their median. The point is marked if they still differ."
        ),
    ),
    _point(
        name="warm-up",
        kind=Whole(0, 100),
        default=1,
        help=(
            "Measurements at the start that are not counted, so that all points find the same "
            "caches."
        ),
    ),
    _point(
        name="sample",
        kind=SHARE,
        default_text="the whole table",
        help=(
            "Read only this share of the table. It has whole work units from all parts of the "
            "table. All points read the same rows."
        ),
        common=True,
    ),
    _point(
        name="seconds",
        kind=SECONDS,
        default_text="no limit",
        help="End each measurement after this many seconds.",
        common=True,
    ),
    _point(
        name="seed",
        kind=Whole(0),
        default=0,
        help="Number that sets the random order. The same number gives the same order.",
    ),
    _point(
        name="csv",
        kind=PathText("FILE", only="file"),
        empty=False,
        help="Write the points to FILE, with a line for each measurement, for --replay.",
        example="points.csv",
    ),
    _point(
        name="job",
        kind=PathText("FILE.toml", only="file"),
        empty=False,
        help=(
            "Write a job file with the recommended options. It is for unloader run and has the "
            "other options of this command. If nothing is recommended, the exit status is 10."
        ),
        common=True,
    ),
)
