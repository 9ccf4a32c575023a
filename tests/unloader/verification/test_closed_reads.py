"""`verify` closes no file that another thread still reads: the next file may get its number."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from long_tests import OTHER_ROUTES, also
from processes import breaking, command

SOURCE = Path(breaking.__file__).parent / "closed_reads.c"
WIDE_CHARACTERS = 30_000_000
"""More than any reader takes at a time by default."""


@pytest.mark.parametrize(
    "options",
    [
        "--compression none",
        *also(OTHER_ROUTES, "--compression zstd", "--compression gzip", "--dialect mysql"),
        *also(OTHER_ROUTES, "--format parquet", "--format parquet --encoder plain"),
    ],
)
def test_no_file_is_closed_while_it_is_read(tmp_path: Path, options: str) -> None:
    """A file with a wide record is found right, however late the reads of other threads come."""
    out, log = tmp_path / "out", tmp_path / "closed"
    with closing(duckdb.connect(str(tmp_path / "t.db"))) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT range AS id, repeat('a', CASE range WHEN 2000 THEN "
            f"{WIDE_CHARACTERS} ELSE 5000 END) AS v FROM range(9000)"
        )
    chosen = (f"duckdb://{tmp_path / 't.db'}", "--table", "t", "--to", str(out))
    command.run("run", *chosen, "--parallelism", "1", *options.split())
    late = {
        "LD_PRELOAD": str(breaking.build(SOURCE, tmp_path)),
        "READS_PATH": f"{out}/t.",
        "READS_MS": "200",
        "READS_LOG": str(log),
    }
    command.run("verify", str(out), env=late)
    assert not log.exists(), log.read_text()
