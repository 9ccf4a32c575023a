"""The answer in a few sentences."""

from __future__ import annotations

from unloader.sizing.model import Needed, OnCores
from unloader.sizing.sheet import shown
from unloader.sizing.work import Work


def answer_of(work: Work, needed: Needed | None, machine: OnCores | None) -> str:
    """Return whether it fits, how long it takes, and what it needs."""
    question = work.question
    window = question.window_seconds
    off = f"with {question.discount * 100:g} % taken off the measured rates"
    what = f"{shown(work.rows)} rows, {shown(work.data)} bytes"
    parts = []
    if machine is not None:
        took = f"{what} take {duration(machine.seconds)} on {_cores(machine.cores)} {off}"
        if machine.fits is None:
            parts.append(f"{took}.")
        elif machine.fits:
            parts.append(f"Yes: {took}; the window is {duration(window)}.")
        else:
            parts.append(f"No: {took}; the window is {duration(window)}.")
            full = duration(machine.seconds_without_discount)
            fits = "which fits" if machine.fits_without_discount else "which does not fit either"
            parts.append(f"Without the discount it is {full}, {fits}.")
        parts.append(f"The limit there is: {machine.limited_by}.")
    if needed is not None and needed.workers is not None and needed.cores is not None:
        workers = "1 worker" if needed.workers == 1 else f"{needed.workers:,} workers"
        parts.append(
            f"The window of {duration(window)} needs {workers} on {_cores(needed.cores)} {off}."
        )
    if work.source_rate is not None and work.needed_rate is not None:
        most = work.source_rate * (1 - question.discount)
        if most < work.needed_rate:
            parts.append(
                f"The source itself gave no more than {shown(work.source_rate)} bytes/s, however "
                "many workers fetched: further cores do not help."
            )
    return " ".join(parts)


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count:,} cores"


def duration(seconds: float | None) -> str:
    """Return a time as people say it."""
    if seconds is None:
        return "no time"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count:,} {unit}" for count, unit in parts if count)
