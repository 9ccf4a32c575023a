"""A disk of known speed: preflight measures it, and a run states how much of it it used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from processes import command
from processes.throttled import NoThrottle, Throttled, throttled

LIMIT = 16_000_000


@pytest.fixture
def slow_disk(tmp_path: Path) -> Iterator[Throttled]:
    """A group of processes that write 16 MB/s to the disk of the test's directory."""
    try:
        with throttled(tmp_path, LIMIT) as group:
            yield group
    except NoThrottle as reason:
        pytest.skip(str(reason))


@pytest.mark.long("throttled machines")
def test_a_throttled_disk_is_measured_as_it_is(slow_disk: Throttled, tmp_path: Path) -> None:
    """No figure of a disk is above its capacity, and a run into it is compared with that."""
    saved, to, path = tmp_path / "c.json", tmp_path / "out", tmp_path / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, md5(i::VARCHAR) AS h FROM range(300000) r(i)"
        )
    slow_disk.run(
        *("preflight", "--to", str(to), "--direct-io", "--disk-bytes", "16MB", "--rounds", "1"),
        *("--parallelism", "1", "--save", str(saved), "--quiet"),
    )
    (disk,) = json.loads(saved.read_text())["disks"]
    # The kernel lets a first slice pass.
    assert 0 < disk["bytes_per_second"] < 1.2 * LIMIT
    slow_disk.run(
        *("run", f"duckdb://{path}", "--table", "t", "--to", str(to), "--direct-io"),
        *("--parallelism", "1", "--ceilings", str(saved), "--quiet"),
    )
    (part,) = command.manifest_of(to)["efficiency"]["parts"]
    assert part["what"] == "disk"
    assert part["ceiling"] == disk["bytes_per_second"]
    assert part["rate"] < 1.2 * LIMIT
