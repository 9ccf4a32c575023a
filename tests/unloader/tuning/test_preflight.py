"""`unloader preflight`: its figures, its blanks, and no leftovers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from long_tests import OTHER_ROUTES, also
from processes import command
from processes.throttled import NoThrottle, Throttled, throttled

from unloader.tuning import measuring_process as process
from unloader.tuning.measuring_tasks import WriteSettings, WriteTask, Written

SMALL = (
    *("--disk-bytes", "256kB", "--rounds", "2", "--overlap-buffer", "16KiB"),
    *("--source-seconds", "10", "--sample", "64kB"),
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a DuckDB file with a table of several row groups, and an empty one."""
    path = tmp_path_factory.mktemp("preflight") / "t.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, 'name ' || i % 100 AS name FROM range(130000) r(i)"
        )
        connection.execute("CREATE TABLE empty (id INTEGER)")
    return f"duckdb://{path}"


def measured(*arguments: str) -> dict[str, Any]:
    """Return what preflight finds."""
    found: dict[str, Any] = json.loads(command.run("preflight", *arguments, "--json"))
    return found


def reasons(found: dict[str, Any]) -> dict[str, str]:
    return {each["what"]: each["reason"] for each in found["not_measured"]}


def test_disks_alone_and_together(tmp_path: Path) -> None:
    """Each directory has a figure for one file and for the run's, all together one; none is made."""
    one, two = tmp_path / "one", tmp_path / "not" / "there"
    one.mkdir()
    found = measured("--to", f"{one},{two}", "--parallelism", "3", *SMALL)
    assert [(each["directories"], each["writers"]) for each in found["disks"]] == [
        ([str(one)], 1),
        ([str(one)], 2),
        ([str(two)], 1),
        ([str(two)], 2),
    ]
    assert found["disks"][2]["measured_in"] == [str(tmp_path)]
    assert (found["together"]["writers"], found["together"]["rounds"]) == (3, 2)
    for each in (*found["disks"], found["together"]):
        assert 0 < each["lowest"] <= each["bytes_per_second"] <= each["highest"]
        assert 200_000 < each["bytes"] <= 256_000
        assert all(mount["point"] for mount in each["mounts"])
    assert reasons(found) == dict.fromkeys(
        ("source", "encoder", "connection"), "no SOURCE is given"
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["one"]


def test_source_encoder_and_codecs(database: str, tmp_path: Path) -> None:
    """Each part has rates, and blanks have a reason: for people, and in the saved file."""
    saved = tmp_path / "c.json"
    page = command.run(
        *("preflight", database, "--table", "t", "--levels", "2,1", "--without", "disk", *SMALL),
        *("--split", "range", "--unit-bytes", "100kB", "--save", str(saved)),
    )
    found = json.loads(saved.read_text())
    levels = found["source"]["levels"]
    assert [each["parallelism"] for each in levels] == [1, 2]
    assert all(each["rows"] > 0 and each["rows_per_second"] > 0 for each in levels)
    assert found["source"]["columns"] == 2
    encoder = found["encoder"]
    assert (encoder["format"], encoder["bytes_per_cpu_second"] > 0) == ("csv", True)
    assert {each["codec"] for each in encoder["codecs"]} == {"none", "lz4", "zstd", "gzip"}
    assert found["disks"] == []
    assert found["round_trip_seconds"] is None
    assert "without a connection" in reasons(found)["connection"]
    assert "disk" not in reasons(found)
    for text in (
        "machine",
        "rows/s",
        "csv encoder",
        "zstd:3",
        "not measured",
        "without a connection",
    ):
        assert text in page


def test_a_query_is_read_by_one_worker(database: str) -> None:
    """As in a run of it: however many workers are allowed, the source is measured with one."""
    query = ("--query", "SELECT * FROM t", "--parallelism", "3")
    found = measured(database, *query, "--without", "encoder", "--without", "disk", *SMALL)
    assert found["parallelism"] == 1
    assert [each["parallelism"] for each in found["source"]["levels"]] == [1]


def test_a_connection_has_a_round_trip(postgres: Any) -> None:
    """The round trip of a server is measured, and so is a source with a connection."""
    url = postgres.database("preflight")
    postgres.run("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 20000) r(i)", url=url)
    found = measured(
        url, "--table", "t", "--levels", "1", "--without", "disk,encoder", *SMALL
    )  # fmt: skip
    assert 0 < found["round_trip_seconds"] < 10
    (level,) = found["source"]["levels"]
    assert level["rows"] == 20000


def test_levels_above_the_work_units_are_blank(database: str) -> None:
    """A level whose workers would have nothing to read has a reason instead of a rate."""
    asked = ("--table", "t", "--split", "none", "--levels", "1,3", "--without", "disk,encoder")
    found = measured(database, *asked, *SMALL)
    (level,) = found["source"]["levels"]
    assert (level["parallelism"], level["rows"]) == (1, 130000)
    assert level["cpu_seconds"] > 0
    assert "1 work unit" in reasons(found)["source with 3 workers"]


def test_a_disk_that_cannot_be_measured_is_blank(tmp_path: Path) -> None:
    """A file in the way and a disk without room have reasons, and the other directory a figure."""
    (tmp_path / "file").write_text("mine")
    found = measured(
        "--to", f"{tmp_path / 'file'},{tmp_path / 'dir'}", "--parallelism", "1", *SMALL
    )
    assert {each["directories"][0] for each in found["disks"]} == {str(tmp_path / "dir")}
    assert "not a directory" in reasons(found)[f"disk of {tmp_path / 'file'}, 1 file"]
    assert found["together"] is None
    assert (tmp_path / "file").read_text() == "mine"
    found = measured("--to", str(tmp_path), "--disk-bytes", "16MiB", "--parallelism", "2")
    assert [each["writers"] for each in found["disks"]] == [1]
    assert "--disk-bytes" in reasons(found)[f"disk of {tmp_path}, 2 files together"]


def test_a_disk_without_room_is_not_written_to(tmp_path: Path) -> None:
    """More bytes than are free are a reason, and so is a stream, which has no disk."""
    found = measured("--to", str(tmp_path), "--disk-bytes", "4000000TiB", "--parallelism", "1")
    assert found["disks"] == []
    assert "are needed" in reasons(found)[f"disk of {tmp_path}, 1 file"]
    assert reasons(measured("--to", "pipe:/tmp/nobody", "--parallelism", "1"))["disk"]


@pytest.mark.parametrize("number", [signal.SIGINT, *also("ways of dying", signal.SIGKILL)])
def test_nothing_stays_if_it_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    """Neither Ctrl-C nor a kill in the middle of writing leaves a file."""
    running = command.Running(
        *("preflight", "--to", str(tmp_path), "--disk-bytes", "200GiB", "--disk-seconds", "600"),
        *("--parallelism", "1", "--rounds", "1"),
    )
    room = os.statvfs(tmp_path)
    if room.f_bavail * room.f_frsize < 400 * 2**30:
        # A small disk never has this room: less is requested, and time ends it.
        running.process.kill()
        running.finish()
        running = command.Running(
            *("preflight", "--to", str(tmp_path), "--disk-seconds", "600", "--parallelism", "1"),
            *("--disk-bytes", str(room.f_bavail * room.f_frsize // 4), "--rounds", "1"),
        )
    running.wait_until(lambda: _written(running) > 2**20, "bytes on the disk")
    workers = running.workers()
    running.signal(number)
    status, _, _ = running.finish()
    assert status == (130 if number is signal.SIGINT else -number)
    for worker in workers:
        worker.wait(180)
    assert list(tmp_path.iterdir()) == []


def _written(running: command.Running) -> int:
    most = 0
    for worker in running.workers():
        with suppress(psutil.Error):
            most = max(most, worker.io_counters().write_bytes)
    return most


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--to", "x", "--levels", "1,2"),
        ("duckdb:///nowhere.db", "--table", "T", "--levels", "0"),
        ("--to", "x", "--without", "discs"),
        ("--to", "x", "--disk-seconds", "0"),
        *also(
            OTHER_ROUTES,
            (("--table", "T"),),
            (("--to", "x", "--without", "disk,source,encoder,connection"),),
            (("--to", "x", "--disk-bytes", "0"),),
            (("--to", "x", "--rounds", "0"),),
            (("--to", "x,x"),),
            (("--to", ""),),
            (("--to", "x", "--save", ""),),
        ),
    ],
)
def test_a_wrong_call_is_one_clear_error(arguments: tuple[str, ...]) -> None:
    """A contradiction or an incomplete call is reported in one line, before anything is written."""
    command.error_of("preflight", *arguments, status=2)


def test_a_result_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    """The file of ceilings is there as a whole, or the command reports first that it is missing."""
    asked = ("preflight", "--to", str(tmp_path), *SMALL, "--parallelism", "1", "--save")
    assert "--save" in command.error_of(*asked, str(tmp_path / "no" / "c.json"), status=6)
    manifest = tmp_path / "_manifest.json"
    manifest.write_text("mine")
    assert "manifest" in command.error_of(*asked, str(manifest), status=6)
    assert manifest.read_text() == "mine"


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


@pytest.fixture
def writing() -> Callable[[Path], WriteTask]:
    """Make the task of writing a small file into a directory."""

    def task(directory: Path) -> WriteTask:
        settings = WriteSettings(
            overlap_buffer=65536, overlap_buffers=2, checksum="xxh3", direct_io=False
        )
        return WriteTask(directory=str(directory), writing=settings, bytes=200_000, seconds=60.0)

    return task


def test_a_file_with_a_name_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing: Callable[[Path], WriteTask]
) -> None:
    """Where the file system has no files without a name, the one that is made is removed."""
    seen = []
    real = process.Sink

    def watched(path: str, **options: Any) -> Any:
        seen.extend(each.name for each in tmp_path.iterdir())
        return real(path, **options)

    monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(process, "Sink", watched)
    done = process.work(writing(tmp_path), lambda message: None)
    assert isinstance(done, Written)
    assert done.bytes == 200_000
    assert [name.startswith(process.PREFIX) for name in seen] == [True]
    assert list(tmp_path.iterdir()) == []
