"""From what was measured to what a night needs: pure, without a clock or a file.

The currency is bytes of text before compression: rows of another width take another time. Every
measured rate is multiplied by the ratio of the CPUs and loses the discount.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from unloader.errors import UsageError
from unloader.nouns import counted
from unloader.sizing.answer import answer_of
from unloader.sizing.machine import time_on_cores
from unloader.sizing.model import Basis, Measured, Needed, Question, Sizing, Unknown
from unloader.sizing.sheet import Sheet
from unloader.sizing.space import network_needed, spaces_of
from unloader.sizing.work import Level, Work


def size(question: Question, basis: Basis) -> Sizing:
    """Return what the question needs, with every step.

    Raises:
        UsageError: Something is neither given nor known, or no figure can be reckoned with.
    """
    sheet, unknown = Sheet(), list[Unknown]()
    assumptions = list(basis.notes)
    if basis.predicted:
        assumptions.append(
            "no run was measured: rates are the lowest of the rates of source, encoder and cores"
        )
    work = _work(question, basis, sheet, assumptions)
    needed = _needed(work, sheet, assumptions) if work.needed_rate is not None else None
    machine = time_on_cores(work, sheet, assumptions) if question.cores is not None else None
    window = question.window_seconds
    seconds = window if window is not None else machine.seconds if machine else None
    space = spaces_of(work, basis, seconds, sheet, unknown)
    if seconds is not None:
        network = network_needed(work, basis, seconds, sheet, assumptions)
        disks = next((each.disks for each in space if each.codec == "none"), None)
        needed = Needed(
            workers=needed.workers if needed else None,
            cores=needed.cores if needed else None,
            disks=disks,
            **network,
        )
    return Sizing(
        answer=answer_of(work, needed, machine),
        question=question,
        origins=basis.origins,
        steps=sheet.steps,
        needed=needed,
        on_cores=machine,
        space=space,
        assumptions=tuple(dict.fromkeys(assumptions)),
        unknown=tuple(unknown),
    )


def _work(question: Question, basis: Basis, sheet: Sheet, assumptions: list[str]) -> Work:
    rows = question.rows if question.rows is not None else basis.rows
    width = question.row_bytes if question.row_bytes is not None else basis.row_bytes
    if rows is None:
        raise UsageError("the number of rows is not given", "give --rows, such as 10G")
    if width is None:
        raise UsageError(
            "the width of a row as text is not given",
            "give --row-bytes, such as 165, or --from a run to CSV",
        )
    if question.window_seconds is None and question.cores is None:
        raise UsageError(
            "neither a time nor a machine is given",
            "give --window, such as 1h, or --cores, or both",
        )
    if not basis.measured:
        raise UsageError(
            "the speed of an unload is not given",
            "give a manifest, points or ceilings with --from, or use --like record",
        )
    rows = sheet.given("rows", rows, "rows")
    width = sheet.given("row width", width, "bytes")
    data = sheet.times("data", rows, width, unit="bytes")
    rate = None
    if question.window_seconds is not None:
        window = sheet.given("window", question.window_seconds, "s")
        rate = sheet.over("needed rate", data, window, unit="bytes/s")
    levels = _levels(basis.measured, question, rows=rows, width=width, assumptions=assumptions)
    return Work(
        question=question,
        rows=rows,
        data=data,
        needed_rate=rate,
        levels=levels,
        source_rate=(
            None if basis.source_rows_per_second is None else basis.source_rows_per_second * width
        ),
        disk_rate=question.disk_rate if question.disk_rate is not None else basis.disk_rate,
    )


def _levels(
    points: tuple[Measured, ...],
    question: Question,
    *,
    rows: float,
    width: float,
    assumptions: list[str],
) -> tuple[Level, ...]:
    """Return each number of workers once, with its median rate; lowest first."""
    grouped = defaultdict(list)
    for each in points:
        grouped[each.workers].append(each)
        if each.bytes is None:
            what = (
                "how many rows or bytes they read"
                if each.rows is None
                else "how wide the rows were"
            )
            assumptions.append(f"the points do not show {what}: assumed to be as in this question")
    found = []
    for workers in sorted(grouped):
        rates, costs = [], []
        for each in grouped[workers]:
            size = each.bytes or (rows if each.rows is None else each.rows) * width
            rates.append(size / each.seconds)
            if each.cpu_seconds is not None:
                costs.append(each.cpu_seconds / size)
        known = [each.cores for each in grouped[workers] if each.cores is not None]
        cores = known[0] if known else min(workers, question.measured_cores or workers)
        if not known and question.measured_cores is None:
            assumptions.append(
                "one core for each worker, because the number of cores of that machine is unknown"
            )
        found.append(
            Level(
                workers=workers,
                cores=cores,
                rate=median(rates),
                cpu_seconds_per_byte=median(costs) if costs else None,
            )
        )
    return tuple(found)


def _needed(work: Work, sheet: Sheet, assumptions: list[str]) -> Needed:
    """Return workers and cores for the window, by the smallest level that is enough or the best."""
    question = work.question
    assert work.needed_rate is not None
    enough = [each for each in work.levels if work.usable(each) >= work.needed_rate]
    level = enough[0] if enough else max(work.levels, key=lambda each: each.rate)
    rate = sheet.given(
        "measured rate",
        level.rate,
        "bytes/s",
        f"{counted(level.workers, 'worker')} on {level.cores:g} "
        f"{'core' if level.cores == 1 else 'cores'}",
    )
    rate = sheet.over("of one worker", rate, level.workers, unit="bytes/s")
    if question.cpu_ratio != 1:
        rate = sheet.times("on the other CPU", rate, question.cpu_ratio, unit="bytes/s")
    rate = sheet.without("after the discount", rate, question.discount, unit="bytes/s")
    exact = sheet.over("workers", work.needed_rate, rate, unit="workers")
    workers = sheet.whole("workers needed", exact, unit="workers")
    if workers > level.workers:
        assumptions.append(
            f"more than {counted(level.workers, 'worker')} were not measured: each additional "
            "worker is assumed to give as much"
        )
    one = sheet.over("cores of one worker", level.cores, level.workers, unit="cores")
    by_workers = sheet.times("cores for them", workers, one, unit="cores")
    cores = sheet.whole("cores needed", by_workers, unit="cores")
    if level.cpu_seconds_per_byte is not None:
        cores = max(cores, _cores_by_cpu(work, level.cpu_seconds_per_byte, sheet))
    return Needed(workers=workers, cores=cores)


def _cores_by_cpu(work: Work, cost: float, sheet: Sheet) -> int:
    question = work.question
    assert question.window_seconds is not None
    millions = sheet.over("data in MB", work.data, 1e6, unit="MB")
    each = sheet.given("CPU seconds of a MB", cost * 1e6, "CPU s", "as measured")
    used = sheet.times("CPU seconds", millions, each, unit="CPU s")
    used = sheet.over("CPU seconds there", used, question.cpu_ratio, unit="CPU s")
    most = sheet.times(
        "CPU seconds of a core", question.window_seconds, question.cpu_limit, unit="CPU s"
    )
    exact = sheet.over("cores by CPU time", used, most, unit="cores")
    return sheet.whole("cores needed by CPU time", exact, unit="cores")
