"""One consistent point in time, while the table changes under the unload."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
from processes import command
from processes.program import Program

ROWS = 120_000
PARTITIONS = 8

SETUP = f"""
CREATE TABLE moving (id bigint NOT NULL, value text, key text NOT NULL) PARTITION BY HASH (key);
DO $$ BEGIN FOR i IN 0..{PARTITIONS - 1} LOOP EXECUTE format(
  'CREATE TABLE moving_%s PARTITION OF moving FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER %s)',
  i, i); END LOOP; END $$;
INSERT INTO moving SELECT g, 'old ' || g || repeat('.', 100), 'k' || g FROM generate_series(0, {ROWS}) g;
CREATE INDEX ON moving (id);
VACUUM ANALYZE moving;
CREATE TABLE before AS TABLE moving;
"""

COMPARE = """
CREATE TABLE got (id bigint, value text, key text);
{copies}
CREATE TEMP TABLE expected AS
  WITH k AS (SELECT value::bigint AS n FROM got WHERE id = 0)
  SELECT id, CASE WHEN id = 0 THEN n::text
                  WHEN id % 3 = 1 AND (id - 1) / 3 BETWEEN 1 AND n THEN 'rewritten ' || (id - 1) / 3
                  ELSE value END AS value, key
  FROM before, k WHERE NOT (id % 3 = 0 AND id / 3 BETWEEN 1 AND n)
  UNION ALL SELECT 10000000 + i, 'new ' || i, 'k' || i FROM k, generate_series(1, k.n) i;
SELECT value FROM got WHERE id = 0;
SELECT value FROM moving WHERE id = 0;
SELECT count(*) FROM (TABLE got EXCEPT ALL TABLE expected) AS more;
SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE got) AS less;
"""


@pytest.mark.parametrize("split", ["range", *also(OTHER_ROUTES, "partition")])
def test_output_is_one_state_while_a_writer_commits(
    postgres: Any, tmp_path: Path, split: str
) -> None:
    """Inserts, deletes and updates commit all the time; the output is the table at one instant."""
    url = postgres.database(f"moving_{split}")
    postgres.run(SETUP, url=url)
    writer = Program(
        [
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "postgres" / "writer.py"),
            url,
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        dest = tmp_path / "out"
        command.run(
            "run", url, "--table", "moving", "--to", str(dest), "--parallelism", "4",
            "--split", split, "--unit-bytes", "1MiB", "--no-header", "--progress", "none",
        )  # fmt: skip
        assert writer.poll() is None, "the writer died"
    finally:
        writer.send_signal(signal.SIGTERM)
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    manifest = command.manifest_of(dest)
    assert manifest["snapshot"]["kind"] == "exported-snapshot"
    assert manifest["verified"] == {
        "level": "count",
        "source_rows": manifest["totals"]["rows"],
        "result": "ok",
    }
    copies = "\n".join(f"\\copy got from '{file}' csv" for file in sorted(dest.glob("*.csv")))
    seen, now, more, less = postgres.run(COMPARE.format(copies=copies), url=url).split()
    assert int(seen) >= 20
    assert int(now) > int(seen), "no transaction committed while the unload ran"
    assert (more, less) == ("0", "0")


def test_verify_of_a_sound_run_reads_as_such(postgres: Any, tmp_path: Path) -> None:
    """A snapshot ends with every run; a difference then is one of the source, not of the files."""
    url = postgres.database("verified_later")
    postgres.run("CREATE TABLE t AS SELECT generate_series(1, 100) AS id", url=url)
    dest = tmp_path / "out"
    command.run("run", url, "--table", "t", "--to", str(dest), "--quiet")
    done = command.ended("verify", str(dest), url)
    assert done.returncode == 0
    assert "the run's snapshot ended with the run" in done.stderr
    assert "SQLSTATE" not in done.stderr
    postgres.run("INSERT INTO t VALUES (101)", url=url)
    error = command.error_of("verify", str(dest), url, status=8)
    assert "the manifest has 100 rows, but the source counts 101 (as the source is now)" in error
    assert "Next: if the source was changed after the run, start a new run" in error
    unsnapped = tmp_path / "unsnapped"
    command.run(
        "run", url, "--table", "t", "--to", str(unsnapped), "--consistency", "none", "--quiet"
    )
    assert "the run had no snapshot" in command.ended("verify", str(unsnapped), url).stderr
