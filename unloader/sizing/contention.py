"""How cores that nobody has measured do if they hinder each other as the measured ones did."""

from __future__ import annotations

from unloader.sizing.sheet import Sheet, shown
from unloader.sizing.work import Level, Work


def contention(work: Work, most: Level, sheet: Sheet) -> float | None:
    """Return the contention between the level with the fewest cores and another one.

    Amdahl's law through both: the rate of n cores is n / (1 + s (n - 1)) times that of one.

    Args:
        work: Has the levels.
        most: The one that is scaled from.
        sheet: Gets the lines of the arithmetic.

    Returns:
        s, from 0 on; None where there is no level with fewer cores, or the rate of more cores was
        lower: Amdahl's law has no falling curve.
    """
    least = min(work.levels, key=lambda each: (each.cores, -each.rate))
    if least.cores >= most.cores:
        return None
    kept = sheet.over(
        "kept by each core",
        most.rate, most.cores, least.rate / least.cores,
        unit="of one",
        note=f"{least.cores:g} to {most.cores:g} cores",
    )  # fmt: skip
    if kept >= 1:
        return 0.0
    below = kept * (most.cores - 1) - (least.cores - 1)
    if below <= 0:
        return None
    lower = f" - {shown(least.cores - 1)}" if least.cores > 1 else ""
    return sheet.by(
        "contention",
        f"(1 - {shown(kept)}) / ({shown(kept)} x {shown(most.cores - 1)}{lower})",
        (1 - kept) / below,
        unit="",
        note="Amdahl's law",
    )


def rate_with(share: float, level: Level, cores: int, rate: float, sheet: Sheet) -> float:
    """Return the rate of so many cores at a contention.

    Args:
        share: The contention.
        level: The one that was scaled from.
        cores: Asked about.
        rate: Of these cores, if each of them gave as much as those of the level.
        sheet: Gets the line of the arithmetic.
    """
    top, bottom = shown(level.cores - 1), shown(cores - 1)
    return sheet.by(
        f"of {cores} cores that slow each other down",
        f"{shown(rate)} x (1 + {shown(share)} x {top}) / (1 + {shown(share)} x {bottom})",
        rate * (1 + share * (level.cores - 1)) / (1 + share * (cores - 1)),
        unit="bytes/s",
    )
