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
        ValueError: It is none.
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

_asked = partial(Option, section="What is asked", commands=("size",), effect="unrecorded")
_known = partial(Option, section="What was measured", commands=("size",), effect="unrecorded")

OPTIONS = (
    _asked(
        name="rows",
        kind=COUNT,
        default_text="as measured",
        help="Number of rows of the table (200k, 50M, 10G).",
    ),
    _asked(
        name="row-bytes",
        kind=_NUMBER,
        default_text="as measured",
        help="Bytes of the text of one row on average, before compression.",
    ),
    _asked(
        name="window",
        kind=SECONDS,
        default_text="none",
        help="Time in which the unload must end (3600, 90m, 1h).",
    ),
    _asked(
        name="cores",
        kind=Whole(1, 1_000_000),
        default_text="none",
        help="Cores of the machine that is asked about; threads of one core count once.",
    ),
    _asked(
        name="disks",
        kind=Whole(1, 100_000),
        default_text="not a limit",
        help="Number of disks that the output is spread over.",
    ),
    _asked(
        name="disk-rate",
        kind=SIZE_FROM_1,
        default_text="as measured",
        help="Bytes a second that one disk takes (500MB).",
    ),
    _asked(
        name="network-rate",
        kind=SIZE_FROM_1,
        default_text="not a limit",
        help="Bytes a second that the network to the source carries (1250MB is 10 Gbit/s).",
    ),
    _asked(
        name="cpu-ratio",
        kind=_NUMBER,
        default=1.0,
        help="Benchmark score of one core of the machine that is asked about, divided by that of "
        "the machine that measured, for instance by SPECrate 2017 Integer and number of cores.",
    ),
    _asked(
        name="discount",
        kind=_PERCENT,
        default=0.2,
        help="Percentage that is taken off each measured rate, below 100.",
    ),
    _asked(
        name="cpu-limit",
        kind=_PERCENT,
        default=0.75,
        help="Percentage of the cores' time that the unload may use.",
    ),
    _known(
        name="from",
        kind=_FILES,
        multiple=True,
        help="What was measured: the directory or manifest of a finished run, the points of a "
        "sweep as CSV or JSON, or a file made by `unloader preflight --save`. Separated by commas, "
        "or repeated.",
    ),
    _known(
        name="like",
        kind=Choice("record"),
        help="Use the rates of a published record, of another program and machine, in place of "
        "your own: ten billion rows in 58 minutes on 16 cores.",
    ),
    _known(
        name="measured-cores",
        kind=Whole(1, 1_000_000),
        default_text="one a worker",
        help="Cores of the machine that measured, where its figures do not say.",
    ),
)
