"""Options of `unloader size`."""

from __future__ import annotations

import re
from functools import partial

from unloader.request.options.kinds import COUNT, SECONDS, SIZE_FROM_1, Choice, Items, Parsed, Whole
from unloader.request.options.option import Option
from unloader.request.settings import any_percent, percent_text

_MOST = 1e9


def _positive(text: str) -> float:
    """Return a number above 0.

    Raises:
        ValueError: It is not such a number.
    """
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}", text.strip()):
        raise ValueError(f"{text!r} is not a number above 0; write for instance 165 or 1.35")
    found = float(text)
    if not 0 < found <= _MOST:
        raise ValueError(f"{text!r} is not a number above 0 and up to {_MOST:,.0f}")
    return found


_NUMBER = Parsed("NUMBER", _positive, write=lambda value: f"{value:g}", numbers=(int, float))
_PERCENT = Parsed("PERCENT", any_percent, write=percent_text, numbers=(int, float))
_FILES = Items("FILE|DEST", keep_quotes=False)

_asked = partial(Option, section="Target", commands=("size",), effect="unrecorded")
_known = partial(Option, section="Measured", commands=("size",), effect="unrecorded")

OPTIONS = (
    _asked(
        name="rows",
        kind=COUNT,
        default_text="as measured",
        help="Number of rows of the table, such as 200k, 50M or 10G.",
        common=True,
    ),
    _asked(
        name="row-bytes",
        kind=_NUMBER,
        default_text="as measured",
        help="Average bytes of the text of one row, before compression.",
        common=True,
    ),
    _asked(
        name="window",
        kind=SECONDS,
        default_text="none",
        help="Time in which the unload must end, such as 3600, 90m or 1h.",
        common=True,
    ),
    _asked(
        name="cores",
        kind=Whole(1, 1_000_000),
        default_text="none",
        help="Cores of the machine to size. Threads of one core count once.",
        common=True,
    ),
    _asked(
        name="disks",
        kind=Whole(1, 100_000),
        default_text="not a limit",
        help="Number of disks that the output is spread over.",
        common=True,
        example="4",
    ),
    _asked(
        name="disk-rate",
        kind=SIZE_FROM_1,
        default_text="as measured",
        help="Bytes per second that one disk takes, such as 500MB.",
        example="500MB",
    ),
    _asked(
        name="network-rate",
        kind=SIZE_FROM_1,
        default_text="not a limit",
        help="Bytes per second of the network to the source. 1250MB is 10 Gbit/s.",
        example="1250MB",
    ),
    _asked(
        name="cpu-ratio",
        kind=_NUMBER,
        default=1.0,
        help=(
            "Benchmark score of one core of the machine to size, divided by the score of the "
            "machine that measured. One such score is SPECrate 2017 Integer, divided by the number "
            "of cores."
        ),
    ),
    _asked(
        name="discount",
        kind=_PERCENT,
        default=0.2,
        help="Percentage that is subtracted from each measured rate, below 100.",
    ),
    _asked(
        name="cpu-limit",
        kind=_PERCENT,
        default=0.75,
        help="Percentage of the time of the cores that the unload may use.",
    ),
    _known(
        name="from",
        kind=_FILES,
        multiple=True,
        help=(
            "Files with measured figures. They are the directory or manifest of a finished run, "
            "the points of a sweep as CSV or JSON, or a file from `unloader preflight --save`. "
            "Separate several with commas, or repeat the option."
        ),
        common=True,
    ),
    _known(
        name="like",
        kind=Choice("record"),
        help=(
            "Use the rates of a published record instead of your own. They are of another program "
            "and machine: ten billion rows in 58 minutes on 16 cores."
        ),
        common=True,
    ),
    _known(
        name="measured-cores",
        kind=Whole(1, 1_000_000),
        default_text="one for each worker",
        help="Cores of the machine that measured, if its figures do not have them.",
        example="16",
    ),
)
