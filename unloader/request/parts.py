"""`--part`: which part of a plan this machine reads, and the name of its directory.

Schedulers that start one job many times tell each of them its number in a variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from unloader.model import Part

INDEXES = {
    "SLURM_ARRAY_TASK_ID": 0,
    "JOB_COMPLETION_INDEX": 1,
    "AWS_BATCH_JOB_ARRAY_INDEX": 1,
}
"""Variables of Slurm arrays, indexed jobs of Kubernetes and array jobs of AWS Batch, and what makes
a part of their number: the last two count from 0. Slurm counts from what the user says; a task
that is submitted again keeps its number, but not what the first one was, so that must be 1."""

PART_PATTERN = r"([0-9]+|auto)/[0-9]+"

PART_DIRECTORY = re.compile(r"part-[0-9]+-of-[0-9]+")
"""The names that `part_directory` gives."""

_PART = re.compile(r"(?P<number>[0-9]+|auto)/(?P<of>[0-9]+)")


def parse_part(text: str, environment: Mapping[str, str] | None = None) -> Part:
    """Return a part from `3/16`, or from `auto/16` with the number of a scheduler.

    Args:
        text: As the user wrote it.
        environment: Where the scheduler's variables are; None is that of this process.

    Raises:
        ValueError: It is no part, or no scheduler says which one.
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
    """Return the number of the part that a scheduler gave, and what it is called in messages."""
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
    """Return the name of the directory of a part; those of all parts sort by number."""
    return f"part-{part.number:0{len(str(part.of))}d}-of-{part.of}"
