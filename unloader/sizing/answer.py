"""The answer in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator

from unloader.nouns import counted
from unloader.sizing.model import Needed, OnCores
from unloader.sizing.sheet import shown
from unloader.sizing.work import Work


def answer_of(work: Work, needed: Needed | None, machine: OnCores | None) -> str:
    """Return whether it fits, how long it takes, and what it needs."""
    question = work.question
    window = question.window_seconds
    off = f"with a discount of {question.discount * 100:g} % on the measured rates"
    what = f"{shown(work.rows)} rows, {shown(work.data)} bytes"
    parts: list[str] = []
    if machine is not None:
        parts += _on_cores(what, off, machine, question.window_seconds)
    if needed is not None and needed.workers is not None and needed.cores is not None:
        workers = counted(needed.workers, "worker")
        measured = max(each.workers for each in work.levels)
        likewise = ", if each additional worker gives as much" if needed.workers > measured else ""
        parts.append(
            f"The window of {duration(window)} needs {workers} on {counted(needed.cores, 'core')} "
            f"{off}{likewise}."
        )
    if work.source_rate is not None and work.needed_rate is not None:
        most = work.source_rate * (1 - question.discount)
        if most < work.needed_rate:
            parts.append(
                f"The source gave at most {shown(work.source_rate)} bytes/s with any number of "
                "workers, so more cores do not help."
            )
    return " ".join(parts)


def _on_cores(what: str, off: str, machine: OnCores, window: float | None) -> Iterator[str]:
    """Yield the sentences on the machine that is asked about."""
    took = f"{what} take {duration(machine.seconds)} on {counted(machine.cores, 'core')} {off}"
    if machine.fits is None:
        yield f"{took}."
    elif not machine.fits:
        yield f"No: {took}; the window is {duration(window)}."
        full = duration(machine.seconds_without_discount)
        fits = "which fits" if machine.fits_without_discount else "which does not fit either"
        yield f"Without the discount it is {full}, {fits}."
    elif machine.measured_cores is not None:
        yield f"Perhaps: {took}; the window is {duration(window)}."
    else:
        yield f"Yes: {took}; the window is {duration(window)}."
    if machine.measured_cores is not None:
        yield (
            "This assumes that each additional core gives as much as each of the "
            f"{machine.measured_cores:g} measured cores. To find out, measure with more workers."
        )
    yield f"The limit is then: {machine.limited_by}."


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
