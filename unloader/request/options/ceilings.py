"""Options on measuring ceilings, and on holding a run against them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from unloader.model import Request
from unloader.request.levels import levels_text, parse_levels
from unloader.request.options.kinds import (
    GLOBS,
    SECONDS,
    SIZE_FROM_1,
    Parsed,
    PathText,
    Whole,
)
from unloader.request.options.option import Option

_write_levels: Callable[[Any], str] = levels_text

_measuring = partial(Option, section="Measure", commands=("preflight",), effect="unrecorded")

CEILINGS = Option(
    name="ceilings",
    kind=PathText("FILE", only="file"),
    section="Display",
    commands=("run",),
    effect="none",
    field="ceilings",
    owner=Request,
    shape=os.path.abspath,
    default_text="none",
    empty=False,
    help=(
        "Compare the rates of the run with the ceilings in FILE, which `unloader preflight "
        "--save` wrote on this machine. The result and the manifest have the percentages."
    ),
    example="ceilings.json",
)

OPTIONS = (
    _measuring(
        name="without",
        kind=GLOBS,
        multiple=True,
        help=(
            "Leave out disk, source, encoder or connection. Separate several with commas, or "
            "repeat the option."
        ),
    ),
    _measuring(
        name="levels",
        kind=Parsed("LEVELS", parse_levels, write=_write_levels, numbers=(int,)),
        default_text="1,2,4 and so on up to --parallelism",
        help="Numbers of workers that read the source, such as 1,2,4 or 32..4:-4.",
        example="1,2,4,8",
    ),
    _measuring(
        name="source-seconds",
        kind=SECONDS,
        default=5.0,
        help="Seconds of fetching for each number of workers.",
    ),
    _measuring(
        name="disk-bytes",
        kind=SIZE_FROM_1,
        default=1024 * 1024 * 1024,
        help=(
            "Bytes to write for one figure of a disk. Write more than the caches of the disk and "
            "its controller hold."
        ),
        common=True,
    ),
    _measuring(
        name="disk-seconds",
        kind=SECONDS,
        default=10.0,
        help=(
            "Seconds of writing for one figure of a disk. The figure ends at --disk-bytes or after "
            "these seconds."
        ),
    ),
    _measuring(
        name="rounds",
        kind=Whole(1, 100),
        default=3,
        help="Rounds for one figure of a disk. The figure is the median.",
    ),
    _measuring(
        name="save",
        kind=PathText("FILE", only="file"),
        empty=False,
        help="Write the result to FILE as JSON. It is for `unloader run --ceilings FILE` and "
        "`unloader size --from FILE`.",
        common=True,
    ),
    CEILINGS,
)
