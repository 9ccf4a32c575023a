"""One consistent point in time of a table and of a schema, while a writer commits."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace
from processes import command
from processes.program import Program
from schema_sources import Schema, check, filled, quoted, samples, writing

from unloader.model import SourceSpec
from unloader.sources.postgres.session import Session

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


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


sys.path.append(str(EXAMPLES))
SIZES = {"source": "postgres", "tables": 34, "big_tables": 1, "big_rows": 20_000, "small_rows": 60}


@pytest.fixture(scope="module")
def schema(postgres: Any) -> Schema:
    """Tables with hostile names and foreign keys, one of them larger."""
    found = Schema(
        url=postgres.database("schema"),
        tables=samples(argparse.Namespace(**SIZES)),
        pattern='"Bench ""Schema""".*',
        schema='Bench "Schema"',
        bin=Path(postgres.psql).parent,
    )
    filled(found)
    return found


def test_every_table_is_as_one_transfer_left_it(schema: Schema, tmp_path: Path) -> None:
    """Row by row, and in the sum of all tables, as a reader finds that knows nothing of ours."""
    arguments = [
        text
        for name, value in SIZES.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    with writing(schema, arguments, EXAMPLES / "bench_schema.py"):
        command.run(
            *("run", schema.url, "--table", schema.pattern, "--parallelism", "2"),
            *("--unit-bytes", "256KiB", "--to", f"{tmp_path}/out/{{schema}}.{{table}}", "--quiet"),
        )
    assert check(schema, tmp_path / "out")["tables"] == SIZES["tables"]


def test_a_locked_table_fails_alone(schema: Schema, tmp_path: Path) -> None:
    """The others are whole, the exit status means a partial run, and the report names it."""
    locked = next(table for table in schema.tables if table.name == 'quo"te')
    spec = SourceSpec(kind="postgresql", location=schema.url)
    other = Session(replace(spec, session=replace(spec.session, lock_timeout_seconds=0)))
    with closing(other):
        other.execute("SET default_transaction_read_only = off; BEGIN")
        name = f"{quoted(schema.schema)}.{quoted(locked.name)}"
        other.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        done = command.ended(
            *("run", schema.url, "--table", schema.pattern, "--parallelism", "2"),
            *("--lock-timeout", "1s", "--on-table-failure", "continue", "--quiet"),
            *("--to", f"{tmp_path}/out/{{schema}}.{{table}}"),
        )
    assert done.returncode == 7, done.stderr
    assert 'quo"te' in done.stderr
    assert "55P03" in done.stderr
    whole = sorted(
        json.loads(path.read_text())["table"]["name"]
        for path in (tmp_path / "out").glob("Bench*/_manifest.json")
    )
    # The schema has two more, of owners and of the number of the transfer.
    assert len(whole) == SIZES["tables"] + 2 - 1
    assert locked.name not in whole
