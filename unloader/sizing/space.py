"""Disk space and disks for each format and codec, and the network."""

from __future__ import annotations

from typing import TypedDict

from unloader.sizing.model import Basis, CodecSpace, Space, Unknown
from unloader.sizing.sheet import Sheet, rounded
from unloader.sizing.work import Work

_PLAIN = CodecSpace(
    format="csv", codec="none", row_bytes=None, ratio=1.0, bytes_per_cpu_second=None
)


class NetworkNeeded(TypedDict):
    """The fields of `Needed` that are about the network."""

    network_bytes_per_second: float
    network_gigabits_per_second: float
    network_links: int | None


def spaces_of(
    work: Work, basis: Basis, seconds: float | None, sheet: Sheet, unknown: list[Unknown]
) -> tuple[Space, ...]:
    """Return what the output takes in each format and codec that is known; text as it is first."""
    known = {(each.format, each.codec): each for each in (_PLAIN, *basis.spaces)}
    if len(known) == 1:
        unknown.append(
            Unknown(what="other codecs", reason="give ceilings of these rows with --from")
        )
    disk_rate = None
    if work.disk_rate is None:
        unknown.append(
            Unknown(what="disks", reason="give --disk-rate, or ceilings with --from")
        )  # fmt: skip
    else:
        given = sheet.given("one disk", work.disk_rate, "bytes/s")
        disk_rate = sheet.without(
            "one disk, after the discount", given, work.question.discount, unit="bytes/s"
        )
    return tuple(_space(work, each, seconds, disk_rate, sheet) for each in known.values())


def _space(
    work: Work, codec: CodecSpace, seconds: float | None, disk_rate: float | None, sheet: Sheet
) -> Space:
    name = f"{codec.format} {codec.codec}"
    size = work.data if codec.row_bytes is None else rounded(work.rows * codec.row_bytes)
    if codec.row_bytes is not None:
        size = sheet.times(f"{name}, before the codec", work.rows, codec.row_bytes, unit="bytes")
    if codec.ratio != 1:
        small = sheet.over(f"{name}, space", size, codec.ratio, unit="bytes")
    else:
        small = size
    rate = disks = extra = None
    if seconds is not None:
        rate = sheet.over(f"{name}, rate", small, seconds, unit="bytes/s")
        if disk_rate is not None:
            exact = sheet.over(f"{name}, disks", rate, disk_rate, unit="disks")
            disks = sheet.whole(f"{name}, disks needed", exact, unit="disks")
        if codec.bytes_per_cpu_second is not None:
            question = work.question
            extra = sheet.over(
                f"{name}, cores to compress",
                size, codec.bytes_per_cpu_second, question.cpu_ratio, seconds, question.cpu_limit,
                unit="cores",
            )  # fmt: skip
        elif codec.codec == "none":
            extra = 0.0
    return Space(
        format=codec.format,
        codec=codec.codec,
        bytes=small,
        bytes_per_second=rate,
        disks=disks,
        extra_cores=extra,
    )


def network_needed(
    work: Work, basis: Basis, seconds: float, sheet: Sheet, assumptions: list[str]
) -> NetworkNeeded:
    """Return what the connections to the source carry."""
    if basis.network_row_bytes is not None:
        size = sheet.times(
            "over the network", work.rows, basis.network_row_bytes, unit="bytes",
            note="as measured for a row",
        )  # fmt: skip
    else:
        size = sheet.given(
            "over the network", work.data, "bytes", "assumed to be as large as the text"
        )
        assumptions.append(
            "the size of a row on the network was not measured: assumed to be as large as the text"
        )
    rate = sheet.over("network rate", size, seconds, unit="bytes/s")
    gigabits = sheet.over("network rate", rate * 8, 1e9, unit="Gbit/s")
    links = None
    if work.question.network_rate is not None:
        usable = sheet.without(
            "one link, after the discount",
            work.question.network_rate,
            work.question.discount,
            unit="bytes/s",
        )
        exact = sheet.over("links", rate, usable, unit="links")
        links = sheet.whole("links needed", exact, unit="links")
    return NetworkNeeded(
        network_bytes_per_second=rate, network_gigabits_per_second=gigabits, network_links=links
    )
