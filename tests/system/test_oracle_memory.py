"""A worker's memory is bounded by the options: not by a unit's rows, nor by the size of a LOB.

UNLOADER_TEST_MEMORY_ROWS    rows of the smaller table (400000); a multiple of 50000
UNLOADER_TEST_MEMORY_TIMES   how many times as many the larger one has (5)
UNLOADER_TEST_MEMORY_LOB     bytes and characters of a large LOB (128000000)
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash
import zstandard
from oracle import runs
from oracle.leg import database
from oracle.runs import TABLE, Outcome, PeriodicLob, RepeatedDatabase, large_values
from oracle_server import OracleServer

pytestmark = pytest.mark.long("memory and large rows")

BASE_ROWS = 50_000
ROWS = int(os.environ.get("UNLOADER_TEST_MEMORY_ROWS", "400000"))
TIMES = int(os.environ.get("UNLOADER_TEST_MEMORY_TIMES", "5"))
LOB_SIZE = int(os.environ.get("UNLOADER_TEST_MEMORY_LOB", "128000000"))
SMALL_LOB = 1_000_000
ROWS_ALLOWANCE = 25_000_000
"""Bytes that more rows may take: measured 6 to 10 MB, the C library's heap and the index of a
Parquet file's row groups; the rows themselves are hundreds of them. The smaller table fills a row
group of 32 MiB, or the larger one would be held to a worker that has not yet held one."""
LOB_ALLOWANCE = 60_000_000
"""Bytes that a large LOB may take more than a small one; measured 10 to 25 MB, of 1 GB as of
256 MB."""


def peak(done: Outcome) -> int:
    """Return the most memory that the run's worker had, in bytes."""
    assert done.status == 0, done.log
    found: int = done.manifest["totals"]["peak_worker_rss_bytes"]
    assert found > 0
    return found


@pytest.fixture(scope="module")
def repeated() -> Iterator[tuple[OracleServer, RepeatedDatabase]]:
    """The reference table, of any length."""
    made = RepeatedDatabase(BASE_ROWS)
    with OracleServer(made) as server:
        yield server, made


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_of_a_unit_take_no_memory(
    repeated: tuple[OracleServer, RepeatedDatabase], tmp_path: Path, form: str
) -> None:
    """A unit of many times as many rows is unloaded in the same memory."""
    server, made = repeated
    found = []
    for rows in (ROWS, ROWS * TIMES):
        made.times = rows // BASE_ROWS
        to = tmp_path / str(rows)
        done = runs.unload(
            server, TABLE, to, "--split", "none", "--format", form,
            env={"UNLOADER_PASSWORD": "tiger"},
        )  # fmt: skip
        found.append(peak(done))
        assert done.manifest["totals"]["rows"] == rows
        assert len(done.manifest["units"]) == 1
        for name in done.files:
            (to / name).unlink()
    print(f"{form}: {ROWS:,} rows {found[0]:,} bytes, {ROWS * TIMES:,} rows {found[1]:,} bytes")
    assert found[1] <= found[0] + ROWS_ALLOWANCE


@pytest.fixture(scope="module")
def lobs() -> Iterator[OracleServer]:
    """The tables SMALL and BIG, which differ only in the size of two values."""
    made = database()
    large_values(made, "SMALL", SMALL_LOB)
    large_values(made, "BIG", LOB_SIZE)
    with OracleServer(made) as server:
        yield server


@pytest.fixture(scope="module")
def small_peak(lobs: OracleServer, tmp_path_factory: pytest.TempPathFactory) -> int:
    return peak(runs.unload(lobs, "SMALL", tmp_path_factory.mktemp("small") / "out"))


def expected(size: int, dialect: str) -> Iterator[bytes]:
    """Yield the file of a table of `large_values`, as the dialect has it."""
    text = PeriodicLob(length=size, binary=False).pieces()
    data = (piece.hex().encode() for piece in PeriodicLob(length=size, binary=True).pieces())
    short = rb"\x0001"
    if dialect == "rfc4180":
        yield b"ID,C,B\n1,"
        yield from _enclosed(text, b'"')
        yield rb",\x"
        yield from data
        yield b"\n2,short," + short + b"\n"
        return
    head, tail = b"1,~~", b"~~,\r\n"
    between = rb"~~,~~\x"
    length = len(head) + size + len(between) + 2 * size + len(tail)
    yield f"{length:012d}".encode() + head
    yield from text
    yield between
    yield from data
    yield tail
    last = b"2,~~short~~,~~" + short + tail
    yield f"{len(last):012d}".encode() + last


def _enclosed(pieces: Iterator[bytes], enclosure: bytes) -> Iterator[bytes]:
    yield enclosure
    yield from pieces
    yield enclosure


def assert_content(file: io.BufferedIOBase, pieces: Iterator[bytes]) -> int:
    """Check that a file consists of the pieces; return their bytes."""
    at = 0
    for piece in pieces:
        found = file.read(len(piece))
        assert found == piece, f"between bytes {at} and {at + len(piece)}"
        at += len(piece)
    assert file.read(1) == b"", f"more than {at} bytes"
    return at


def xxh3(path: Path) -> str:
    """Return the checksum of a file as a manifest has it."""
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return f"xxh3:{digest.hexdigest()}"


@pytest.mark.parametrize(
    ("dialect", "options"),
    [
        ("rfc4180", ()),
        ("rfc4180", ("--compression", "zstd")),
        ("sqlldr-var", ("--record-length", "12")),
    ],
    ids=["plain", "zstd", "record-length"],
)
def test_large_values_take_no_memory(
    lobs: OracleServer, small_peak: int, tmp_path: Path, dialect: str, options: tuple[str, ...]
) -> None:
    """A huge CLOB and a huge BLOB are written whole, in about the memory of small ones."""
    to = tmp_path / "out"
    done = runs.unload(lobs, "BIG", to, "--dialect", dialect, *options)
    found = peak(done)
    print(f"{dialect} {options}: small {small_peak:,} bytes, {LOB_SIZE:,} units {found:,} bytes")
    (unit,) = done.manifest["units"]
    (described,) = unit["files"]
    path = to / described["path"]
    assert described["checksum"] == xxh3(path)
    with path.open("rb") as file:
        if "zstd" in options:
            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as plain:
                content = io.BufferedReader(plain, 1 << 20)
                assert_content(content, expected(LOB_SIZE, dialect))
        else:
            assert assert_content(file, expected(LOB_SIZE, dialect)) == described["bytes"]
    path.unlink()
    assert found <= small_peak + LOB_ALLOWANCE


def test_parquet_refuses_what_it_would_have_to_hold(lobs: OracleServer, tmp_path: Path) -> None:
    """A LOB above Parquet's limit ends the run with 6: its column, a way out, and no trace."""
    to = tmp_path / "out"
    done = runs.unload(lobs, "BIG", to, "--format", "parquet")
    assert done.status == 6, done.log
    assert "column C" in done.error
    advice = done.error.partition("Next: ")[2]
    assert "--exclude C" in advice
    assert "--format csv" in advice
    assert not to.exists()
    done = runs.unload(lobs, "BIG", to, "--format", "parquet", "--exclude", "C,B")
    assert done.status == 0, done.log
    assert done.manifest["totals"]["rows"] == 2
