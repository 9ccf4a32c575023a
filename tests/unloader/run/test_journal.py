"""What a run writes down of its units comes back, as far as it was written."""

from __future__ import annotations

import json

from stages import stages

from unloader.model import BoundSeat, FinishedUnit
from unloader.run.outputs import Progress, compacted, line, read_journal, staged_line
from writers.model import WrittenFile


def finished(unit: str, attempt: int = 1) -> FinishedUnit:
    """Return a unit with every field set."""
    files = (
        WrittenFile(path=f"{unit}-a1.csv.part", rows=2, bytes=9, checksum="xxh3:0f", directory=1),
    )
    return FinishedUnit(
        unit=unit,
        attempt=attempt,
        rows=2,
        files=files,
        stages=stages(fetch_s=0.5, encode_s=1.0, write_s=0.25),
        seconds=1.5,
        cpu_seconds=0.75,
        peak_rss_bytes=4096,
        partition=None,
        partitions=("p1", "ü"),
        seat=BoundSeat(node=0, cpus=(2, 3), memory_node=0, memory_policy="preferred"),
        worker=1,
        started_s=0.5,
    )


def test_what_is_written_comes_back() -> None:
    """Finished units with all that the manifest needs, and the number of each last attempt."""
    lines = (
        line("started", "0001", 1),
        line("started", "0002", 1),
        line("failed", "0001", 1, "lost"),
        line("started", "0001", 2),
        staged_line(finished("0002")),
    )
    found = read_journal(b"".join(lines))
    assert found.finished == {"0002": finished("0002")}
    assert found.attempts == {"0001": 2, "0002": 1}
    assert read_journal(compacted(found)) == found
    assert read_journal(b"") == Progress()


def test_what_is_not_whole_ends_it() -> None:
    """A torn, empty or malformed line does not count, nor do the lines after it."""
    first, second = staged_line(finished("0001")), staged_line(finished("0002"))
    for torn in (b"\n", b"\0\0\n", second[:-20] + b"\n", b"[]\n", b'{"event": "staged"}\n'):
        assert read_journal(first + torn + second).finished == {"0001": finished("0001")}
    assert read_journal(first + second[:-1]).finished == {"0001": finished("0001")}


def test_no_secret_is_written_down() -> None:
    """A driver's message may contain a password."""
    written = line("failed", "0001", 1, "cannot open postgresql://me:tiger@db/x")
    assert b"tiger" not in written
    assert json.loads(written)["event"] == "failed"
