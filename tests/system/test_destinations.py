"""Where the output goes: several disks, standard output, named pipes, and readers that end."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from long_tests import OTHER_ROUTES
from processes import command
from processes.program import Program

ROWS = 60_000
PARTS = 6
QUIET = ("--split", "partition", "--progress", "none")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DuckDB file with a table of six partitions."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, hash(i)::VARCHAR || chr(10) || hash(i + 1)::VARCHAR AS s "
            f"FROM range({ROWS}) r(i)"
        )
        connection.execute(
            "CREATE TABLE unloader_partitions AS SELECT 'main' AS table_schema, 't' AS table_name,"
            f" 'p' || range AS partition_name, range AS position, range * {ROWS // PARTS} AS"
            f" first_rowid, (range + 1) * {ROWS // PARTS} - 1 AS last_rowid FROM range({PARTS})"
        )
    return f"duckdb://{path}"


@pytest.fixture(scope="module")
def one_file(database: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What `--file-per table` writes."""
    dest = tmp_path_factory.mktemp("one") / "out"
    arguments = ("--to", str(dest), "--file-per", "table", "--quiet", *QUIET)
    command.run("run", database, "--table", "t", *arguments)
    return (dest / "t.csv").read_bytes()


@pytest.fixture(scope="module")
def slow(postgres: Any) -> str:
    url: str = postgres.database("streams")
    postgres.run(
        "CREATE VIEW slow AS SELECT g AS id, repeat('x', 2000) AS s, pg_sleep(0.001)::text AS z "
        "FROM generate_series(1, 1000000) g; CREATE TABLE copied (i bigint, s text);",
        url=url,
    )
    return url


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    """Two file systems, the second of one megabyte."""
    places = [tmp_path / "disk1", tmp_path / "disk2"]
    mounted = []
    for place, size in zip(places, ("64m", "1m"), strict=True):
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        done = subprocess.run(mount, capture_output=True, check=False)
        if done.returncode:
            for each in mounted:
                subprocess.run(["umount", str(each)], check=True)
            pytest.skip("mounting a tmpfs needs root: " + done.stderr.decode().strip())
        mounted.append(place)
    yield places
    for each in mounted:
        subprocess.run(["umount", str(each)], check=True)


class Reader(threading.Thread):
    """Reads a named pipe as soon as it is there, to its end or a number of bytes."""

    def __init__(self, path: Path, limit: int = -1) -> None:
        """Start reading."""
        super().__init__(daemon=True)
        self.path, self.limit, self.data = path, limit, b""
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        """Read."""
        while not self.over.wait(0.02):
            with suppress(FileNotFoundError), open(self.path, "rb") as file:
                self.data = file.read(self.limit)
                return

    def result(self) -> bytes:
        """Wait for the end; return what came."""
        self.join(180)
        self.over.set()
        return self.data


@pytest.mark.parametrize("place", ["null:", "null:rows"])
def test_nothing_is_left_of_what_is_dropped(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Rows are fetched and counted by several workers, and neither file nor directory is made."""
    monkeypatch.chdir(tmp_path)
    run = ("run", database, "--table", "t", "--to", place, "--parallelism", "2", "--json")
    found = json.loads(command.run(*run, *QUIET))
    assert (found["totals"]["rows"], found["verified"]["result"]) == (ROWS, "ok")
    assert found["totals"]["bytes"] > ROWS
    assert {unit["files"][0]["path"] for unit in found["units"]} == {place}
    assert len(found["units"]) == PARTS
    encoded = [unit["stages"]["encode_s"] for unit in found["units"]]
    assert all(encoded) if place == "null:" else not any(encoded)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["null:", "null:rows"])
def test_text_that_the_source_encodes_is_dropped(postgres: Any, place: str) -> None:
    """The rows that PostgreSQL sends as text are counted by its own report."""
    url = postgres.database("dropped")
    postgres.run("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 1000) g", url=url)
    run = ("run", url, "--table", "t", "--to", place, "--parallelism", "1", "--json")
    found = json.loads(command.run(*run, "--progress", "none"))
    assert (found["totals"]["rows"], found["verified"]["result"]) == (1000, "ok")
    # The source does not send the header.
    assert found["totals"]["bytes"] == 3893 + (len("id\n") if place == "null:" else 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--to", "null:x"), "null:x is not a destination"),
        (("--to", "null:,/tmp"), "mixes directories and streams"),
        (("--to", "null:", "--file-per", "table"), "which keeps nothing"),
        (("--to", "null:", "--verify", "full"), "cannot read back the output to null:"),
    ],
)
def test_what_does_not_go_with_nowhere(database: str, options: tuple[str, ...], text: str) -> None:
    """What would have to be kept is refused before anything is read."""
    error = command.error_of("run", database, "--table", "t", *options, status=2)
    assert text in error


@pytest.mark.long(OTHER_ROUTES)
def test_two_file_systems_share_the_files(database: str, disks: list[Path]) -> None:
    """Compressed files fit both disks; verify finds everything from the first, and damage too."""
    dests = [disks[0] / "x", disks[1] / "y"]
    arguments = ("run", database, "--table", "t", "--to", ",".join(map(str, dests)))
    manifest = json.loads(
        command.run(*arguments, "--format", "parquet", "--parallelism", "2", "--json", *QUIET)
    )
    assert manifest["totals"]["rows"] == ROWS
    assert [each["path"] for each in manifest["directories"]] == [str(dest) for dest in dests]
    assert sum(each["bytes"] for each in manifest["directories"]) == manifest["totals"]["bytes"]
    held = [command.final_names(dest) for dest in dests]
    assert [len(held[0]), len(held[1])] == [4, 3]
    assert "_manifest.json" in held[0]
    assert not any((dest / "_run").exists() for dest in dests)
    assert "ok" in command.run("verify", str(dests[0]), database)
    rows = duckdb.sql(
        f"SELECT count(*), count(DISTINCT i) FROM read_parquet(['{dests[0]}/*.parquet', "
        f"'{dests[1]}/*.parquet'])"
    ).fetchall()
    assert rows == [(ROWS, ROWS)]
    (dests[1] / held[1][0]).unlink()
    assert held[1][0] in command.error_of("verify", str(dests[0]), status=8)


def test_a_full_second_disk_publishes_nothing(database: str, disks: list[Path]) -> None:
    """Status 6 with the system's words; with room, the same command replaces the remains."""
    dests = [disks[0] / "x", disks[1] / "y"]
    arguments = ("run", database, "--table", "t", "--to", ",".join(map(str, dests)), *QUIET)
    error = command.error_of(*arguments, status=6)
    assert "No space left on device" in error
    assert str(dests[1]) in error
    assert [command.final_names(dest) for dest in dests] == [[], []]
    command.run(*arguments, "--overwrite", "--compression", "zstd", "--quiet")
    assert command.manifest_of(dests[0])["totals"]["rows"] == ROWS


REFUSED = (
    (("--to", "a,b", "--file-per", "table"), "--file-per table"),
    (("--to", "a,-"), "mixes"),
    (("--to", "-", "--to", "a"), "mixes"),
    (("--to", "-", "--json"), "--json"),
    (("--to", "-", "--overwrite"), "--overwrite"),
    (("--to", "-", "--file-size", "1MiB"), "--file-size"),
    (("--to", "-", "--file-name", "x"), "--file-name"),
    (("--to", "-", "--verify", "full"), "--verify count"),
    (("--to", "-", "--parallelism", "2"), "--parallelism"),
    (("--to", "-", "--format", "parquet", "--split", "partition"), "--split none"),
    (("--to", "pipe:"), "names no pipe"),
    (("--to", "pipe:/tmp/{unit}/x"), "last part"),
    (("--to", "pipe:/tmp/{unit}.{what}"), "{what}"),
    (("--to", "pipe:/tmp/{unit}.csv"), "one pipe takes all work units"),
)


@pytest.mark.parametrize(("options", "told"), REFUSED, ids=lambda each: " ".join(each)[:40])
def test_what_does_not_go_together_is_refused(
    database: str, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    """Each is a usage error that names the option, before anything is written."""
    done = command.ended("run", database, "--table", "t", *options, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr.splitlines()[-1]
    assert "Next: " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_standard_output_is_what_one_file_would_be(database: str, one_file: bytes) -> None:
    """Several units follow each other in table order behind one header; the result is on stderr."""
    for options in ((), ("--compression", "gzip")):
        done = subprocess.run(
            [*command.UNLOADER, "run", database, "--table", "t", "--to", "-", *options, *QUIET],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (gzip.decompress(done.stdout) if options else done.stdout) == one_file
        assert b"verified" in done.stderr


def test_parquet_goes_to_standard_output(database: str, tmp_path: Path) -> None:
    """It is written from front to back, as one work unit."""
    path = tmp_path / "t.parquet"
    with open(path, "wb") as file:
        subprocess.run(
            [
                *(*command.UNLOADER, "run", database, "--table", "t", "--to", "-"),
                *("--format", "parquet", "--quiet"),
            ],
            stdout=file,
            check=True,
        )
    assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(ROWS,)]


@pytest.mark.long(OTHER_ROUTES)
def test_a_reader_that_ends_early_is_told(slow: str) -> None:
    """`| head -c 1000`: status 6 immediately, one line with the sent bytes, no traceback."""
    with Program(
        [
            *(*command.UNLOADER, "run", slow, "--table", "slow", "--to", "-"),
            *("--overlap-buffer", "4KiB", "--progress", "none"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        head = subprocess.run(["head", "-c", "1000"], stdin=running.stdout, capture_output=True)
        running.stdout.close()
        _, err = running.communicate(timeout=180)
    assert len(head.stdout) == 1000
    assert running.returncode == 6, err
    errors = [line for line in err.decode().splitlines() if "error:" in line]
    assert len(errors) == 1
    assert "the reader of standard output ended early" in errors[0]
    assert "are not valid output" in errors[0]
    assert b"Traceback" not in err


@pytest.mark.long(OTHER_ROUTES)
def test_a_killed_worker_is_replaced_only_while_nothing_has_left(slow: str) -> None:
    """After the first byte the attempt cannot be retried, and the message reports this."""
    running = command.Running(
        *("run", slow, "--table", "slow", "--to", "-", "--progress", "none"),
        *("--overlap-buffer", "4KiB"),
    )
    assert running.process.stdout is not None
    assert running.process.stdout.read(1) == "i"
    running.workers()[0].kill()
    status, _, err = running.finish()
    assert status == 6, err
    assert "cannot be retried" in err
    assert "not valid output" in err


def test_one_pipe_takes_all_units(database: str, tmp_path: Path, one_file: bytes) -> None:
    """It is made, waits for its reader, carries what one file would hold, and is gone."""
    path = tmp_path / "all"
    reader = Reader(path)
    arguments = ("run", database, "--table", "t", "--to", f"pipe:{path}", "--json", *QUIET)
    manifest = json.loads(command.run(*arguments))
    assert reader.result() == one_file
    assert manifest["totals"]["files"] == 1
    assert manifest["totals"]["bytes"] == len(one_file)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_a_pipe_that_dies_is_told(slow: str, tmp_path: Path) -> None:
    """Status 6, the pipe by its name, no second attempt, and our pipe is removed."""
    path = tmp_path / "all"
    reader = Reader(path, limit=1000)
    error = command.error_of(
        *("run", slow, "--table", "slow", "--to", f"pipe:{tmp_path}/all", "--progress", "none"),
        *("--overlap-buffer", "4KiB"),
        status=6,
    )
    assert len(reader.result()) == 1000
    assert str(path) in error
    assert "EPIPE" in error
    assert "valid output" in error
    assert list(tmp_path.iterdir()) == []


def test_nobody_reads(database: str, tmp_path: Path) -> None:
    """The wait ends in time, and before that with a signal; nothing is left either way."""
    arguments = ("run", database, "--table", "t", "--to", f"pipe:{tmp_path}/all")
    error = command.error_of(*arguments, "--pipe-timeout", "0.2", *QUIET, status=6)
    assert "--pipe-timeout" in error
    running = command.Running(*arguments, "--pipe-timeout", "0", "--log-interval", "0")
    running.wait_until(lambda: bool(list(tmp_path.iterdir())), "the pipe")
    assert running.process.stderr is not None
    for line in running.process.stderr:
        if "waiting for a reader" in line:
            break
    running.signal(signal.SIGINT)
    status, _, err = running.finish()
    assert status == 130, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long(OTHER_ROUTES)
def test_a_reader_that_stands_still_is_a_stall(slow: str, tmp_path: Path) -> None:
    """It holds the pipe open and takes nothing: --stall-timeout ends the run with status 6."""
    path = tmp_path / "all"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        error = command.error_of(
            *("run", slow, "--table", "slow", "--to", f"pipe:{tmp_path}/all"),
            *("--stall-timeout", "2", "--progress", "none", "--overlap-buffer", "4KiB"),
            status=6,
        )
    finally:
        os.close(descriptor)
    assert "made no progress for 2 s (--stall-timeout)" in error
    assert "cannot be retried" in error
    assert str(path) in error


def test_a_closed_standard_output_is_refused(database: str) -> None:
    """Without this the data would go nowhere and the status be 0."""
    done = subprocess.run(
        [
            *("sh", "-c", '"$@" >&-', "sh"),
            *(*command.UNLOADER, "run", database, "--table", "t", "--to", "-"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "standard output" in done.stderr


def test_a_terminal_gets_text_only(database: str) -> None:
    """Parquet and compressed text would garble it; text is what a terminal is for."""
    query = ("run", database, "--query", "SELECT 7 AS seven", "--to", "-", "--quiet")
    for options, status in (((), 0), (("--format", "parquet"), 2), (("--compression", "lz4"), 2)):
        controller, terminal = os.openpty()
        done = subprocess.run(
            [*command.UNLOADER, *query, *options],
            stdout=terminal,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # Linux tells the end of a terminal by EIO.
            while piece := os.read(controller, 4096):
                shown += piece
        os.close(controller)
        assert done.returncode == status, done.stderr
        assert shown.split() == ([] if status else [b"seven", b"7"])
        assert status == 0 or "terminal" in done.stderr
