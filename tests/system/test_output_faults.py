"""A destination that fails, fills up, stalls or takes little at a time, seen from the command line."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command
from processes.breaking import FaultyCalls

WRITES = "faults of files"
"""The kind of the long tests."""

ROWS = 300_000
QUIET = ("--progress", "none", "--split", "none")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of some 14 MB as text."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, hash(i)::VARCHAR || hash(i + 1)::VARCHAR AS s "
            f"FROM range({ROWS}) r(i)"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> FaultyCalls:
    """The library that makes calls fail."""
    return FaultyCalls.build(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def whole(database: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What undisturbed runs leave, by codec."""
    found = {}
    for codec in ("none", "zstd"):
        dest = tmp_path_factory.mktemp(codec) / "out"
        command.run(
            "run", database, "--table", "t", "--to", str(dest), "--compression", codec, *QUIET
        )
        found[codec] = checksums(dest)
    return found


def checksums(destination: Path) -> list[str]:
    """Return the checksums of a finished run's files in table order."""
    units = command.manifest_of(destination)["units"]
    return [file["checksum"] for unit in units for file in unit["files"]]


@pytest.mark.parametrize(
    ("call", "number", "after", "options"),
    [
        ("write", errno.EDQUOT, 500_000, ("--compression", "zstd")),
        ("write", errno.EIO, 0, ("--format", "parquet")),
        ("fsync", errno.EDQUOT, 1, ("--file-size", "4MiB", "--compression", "gzip:1")),
        *also(
            WRITES,
            ("write", errno.ENOSPC, 1_000_000, ("--direct-io",)),
            ("write", errno.ENOSPC, 5_000_000, ()),
            ("sync_file_range", errno.EIO, 0, ()),
        ),
    ],
)
def test_failing_call_ends_the_run(
    database: str,
    faults: FaultyCalls,
    tmp_path: Path,
    call: str,
    number: int,
    after: int,
    options: tuple[str, ...],
) -> None:
    """After a failed call the status is 6, the file and the system's words are reported."""
    dest = tmp_path / "out"
    error = command.error_of(
        "run", database, "--table", "t", "--to", str(dest), *QUIET, *options,
        status=6, env=faults.environment(call, number, after=after),
    )  # fmt: skip
    assert f"{dest}/_run/staged/" in error
    assert ".part: " in error
    assert f"{os.strerror(number)} ({errno.errorcode[number]})" in error
    assert command.final_names(dest) == []


def test_write_that_takes_nothing_ends_the_run(
    database: str, faults: FaultyCalls, tmp_path: Path
) -> None:
    """A write that reports no bytes and no error is not tried for ever."""
    dest = tmp_path / "out"
    error = command.error_of(
        "run", database, "--table", "t", "--to", str(dest), *QUIET,
        status=6, env=faults.environment("write", "zero"),
    )  # fmt: skip
    assert ".csv.part: " in error
    assert "(EIO)" in error
    assert command.final_names(dest) == []


@pytest.mark.long(OTHER_ROUTES)
@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("short", ("--direct-io", "--compression", "zstd")),
        *also(
            WRITES,
            ("slow", ("--overlap-buffer", "1MiB")),
            ("refused", ("--direct-io",)),
            ("short", ()),
            ("short", ("--direct-io",)),
            ("interrupted", ("--compression", "zstd")),
        ),
    ],
)
def test_awkward_writes_lose_nothing(
    whole: dict[str, list[str]],
    database: str,
    faults: FaultyCalls,
    tmp_path: Path,
    what: str,
    options: tuple[str, ...],
) -> None:
    """Writes that are short, interrupted, slow or refused leave the same files as good ones."""
    command.run(
        "run", database, "--table", "t", "--to", str(tmp_path / "out"), *QUIET, *options,
        env=faults.environment("write", what),
    )  # fmt: skip
    assert checksums(tmp_path / "out") == whole["zstd" if "zstd" in options else "none"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    program = shutil.which("mount")
    mount = [str(program), "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]
    if program is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is for root only")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.parametrize(
    "options", [(), *also(WRITES, (("--direct-io",),), (("--format", "parquet"),))]
)
def test_full_file_system_ends_the_run(
    database: str, small_disk: Path, options: tuple[str, ...]
) -> None:
    """A file system that is full is named with the advice to make room, and left as it was."""
    error = command.error_of(
        "run", database, "--table", "t", "--to", str(small_disk / "out"), *QUIET,
        *options, status=6,
    )  # fmt: skip
    assert "No space left on device (ENOSPC). Next: free space" in error
    assert command.final_names(small_disk / "out") == []
    assert not list(small_disk.rglob("*.part"))


def test_full_standard_output_ends_the_run(database: str) -> None:
    """A standard output that takes nothing more ends the run with status 6."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*command.UNLOADER, "run", database, "--table", "t", "--to", "-", *QUIET],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=600,
        )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert "No space left on device" in done.stderr
