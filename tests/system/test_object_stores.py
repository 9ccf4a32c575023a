"""Runs into an object store: the same bytes as on a disk, all of them or none."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import duckdb
import pytest
from object_stores.faults import Rule, faulty
from object_stores.s3_server import S3Server
from processes import command

ROWS = 400_000
"""Units of 4 MiB and more: the objects have several parts, and buffers are used again."""
_TEXT = "'text that makes the rows of this table longer ' || i"

FOR_EVER = 10**6

_Files = dict[str, bytes]
"""Their names and bytes."""

_MANY = ("--unit-bytes", "4MB")
"""Several work units for each worker."""

MORE = pytest.mark.long("runs into object stores")


@pytest.fixture
def server(s3: S3Server) -> S3Server:
    """A server of S3's protocol, and the credentials for it in the environment."""
    return s3


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 400,000 rows in a DuckDB file; return its URL."""
    path = tmp_path_factory.mktemp("duck") / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, {_TEXT} AS v, i * 1.5 AS d FROM range({ROWS}) r(i)"
        )
    return f"duckdb://{path}"


def run(source: str, place: str, *options: str) -> tuple[str, ...]:
    """Return the run of the table to a place, in a few units of 8 MiB and more."""
    return ("run", source, "--table", "t", "--to", place, "--unit-bytes", "32MB", *options)


@pytest.fixture(scope="module")
def on_disk(source: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., _Files]:
    """Return what gives the files of a run into a directory, which is made once for all tests."""

    @cache
    def files(*options: str) -> _Files:
        directory = tmp_path_factory.mktemp("disk") / "out"
        command.run(*run(source, str(directory), *options))
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.name[0] != "_"}

    return files


def check_like_on_disk(there: _Files, disk: _Files) -> None:
    """Check that a place holds these files, and a manifest of them, and nothing else."""
    assert files_of(there) == disk
    assert {name for name in there if name[0] == "_"} == {"_manifest.json"}
    units = json.loads(there["_manifest.json"])["units"]
    told = {file["path"]: file["bytes"] for unit in units for file in unit["files"]}
    assert told == {name: len(data) for name, data in disk.items()}


def files_of(found: dict[str, bytes]) -> dict[str, bytes]:
    """Return a run's files among the objects of a place."""
    return {name: data for name, data in found.items() if name[0] != "_"}


@pytest.mark.long("runs into object stores")
@pytest.mark.parametrize(
    ("options", "workers"),
    [
        (("--format", "csv", *_MANY), 8),
        (("--format", "parquet"), 1),
        (("--compression", "zstd", "--file-size", "3MB", *_MANY), 2),
        (("--file-per", "table", *_MANY), 2),
    ],
    ids=["csv by 8", "parquet", "files of a size", "one file"],
)
def test_the_same_bytes_as_on_a_disk(
    server: S3Server,
    source: str,
    on_disk: Callable[..., _Files],
    options: tuple[str, ...],
    workers: int,
) -> None:
    """Each object has the bytes of the file of a local run, and nothing else is left there."""
    key = f"same/{'-'.join(options)}-{workers}"
    options = (*options, "--parallelism", str(workers))
    command.run(*run(source, server.place(key), *options, "--verify", "full"))
    check_like_on_disk(server.objects(f"{key}/"), on_disk(*options))
    assert server.uploads(f"{key}/") == []
    command.run("verify", server.place(key), source)


@pytest.mark.long("runs into object stores")
def test_a_changed_object_is_found(server: S3Server, source: str) -> None:
    """Changed bytes and a missing object are differences, and nothing hangs."""
    place = server.place("changed")
    command.run(*run(source, place))
    name = min(files_of(server.objects("changed/")))
    data = bytearray(server.objects("changed/")[name])
    data[len(data) // 2] ^= 1
    data[10:20] = b",,,,,\n\n\n\n,"
    server.client().put_object(Bucket=server.bucket, Key=f"changed/{name}", Body=bytes(data))
    error = command.error_of("verify", place, status=8)
    assert name in error
    server.client().delete_object(Bucket=server.bucket, Key=f"changed/{name}")
    error = command.error_of("verify", place, status=8)
    assert f"cannot read s3://{server.bucket}/changed/{name}" in error


@pytest.mark.long("runs into object stores")
def test_an_earlier_run_is_replaced_as_a_whole(server: S3Server, source: str) -> None:
    """Without --overwrite it stays; with it nothing of it is left but files of no one's."""
    place = server.place("again")
    command.run(*run(source, place, "--file-name", "old-{unit}.{ext}"))
    before = server.objects("again/")
    error = command.error_of(*run(source, place), status=6)
    assert "it holds a finished run" in error
    assert "--overwrite" in error
    assert server.objects("again/") == before
    server.client().put_object(Bucket=server.bucket, Key="again/mine.txt", Body=b"mine")
    command.run(*run(source, place, "--overwrite", "--file-name", "new-{unit}.{ext}"))
    names = set(server.objects("again/"))
    assert not any(name.startswith("old-") for name in names)
    assert names >= {"mine.txt", "_manifest.json"}


@pytest.mark.long("runs into object stores")
def test_a_failed_run_leaves_nothing(server: S3Server, tmp_path: Path) -> None:
    """A value that cannot be written ends the run: no object, no lock, no upload."""
    path = tmp_path / "bad.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, CASE WHEN i = 199999 THEN 'ä' ELSE 'a' END AS v "
            "FROM range(200000) r(i)"
        )
    place = server.place("failed")
    to = ("--to", place, "--encoding", "us-ascii", "--parallelism", "1")
    command.error_of("run", f"duckdb://{path}", "--table", "t", *to, status=6)
    assert server.objects("failed/") == {}
    assert server.uploads("failed/") == []


@MORE
@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(
            (
                Rule("part", "busy", 3),
                Rule("complete", "broken", 2),
                Rule("put", "lost", key="lock.json"),
            ),
            id="refused while it is sent, and the answer lost of the lock",
        ),
        pytest.param(
            (
                Rule("part", "cut", 2),
                Rule("complete", "cut"),
                Rule("put", "lost", key="lock.json", skipped=2),
            ),
            id="connections cut, and the answer lost of publishing",
        ),
        pytest.param(
            (
                Rule("complete", "lost"),
                Rule("put", "lost", key="/_manifest.json"),
                Rule("delete", "broken", 2),
                Rule("list", "busy", 2),
            ),
            id="answers lost of an upload completed and of the manifest, and clearing fails",
        ),
        pytest.param((Rule("part", "other etag"),), id="wrong ETag of a part"),
        pytest.param((Rule("part", "slow", 2), Rule("complete", "slow")), id="slow"),
        pytest.param((Rule("copy", "busy", 3), Rule("copy", "cut", 2)), id="copies fail"),
        pytest.param((Rule("copy", "lost", 2),), id="answers lost of copies"),
    ],
)
def test_faults_on_the_way(
    server: S3Server,
    source: str,
    on_disk: Callable[..., _Files],
    request: pytest.FixtureRequest,
    rules: tuple[Rule, ...],
) -> None:
    """What breaks for a while is tried again, and the result is the same."""
    key = f"faults/{re.sub('[^a-z0-9]+', '-', request.node.name.lower())}"
    # Files that are read before publication are copied to their final names.
    options = ("--verify", "full") if any(rule.kind == "copy" for rule in rules) else ()
    with faulty(server, *rules) as (broken, faults):
        command.run(
            *run(source, broken.place(key), "--parallelism", "2", "--retries", "5", *options)
        )
        assert faults.all_done(), "not all that was to be broken was asked for"
    check_like_on_disk(server.objects(f"{key}/"), on_disk("--parallelism", "2"))


@MORE
def test_a_store_that_stays_broken_ends_the_run(
    server: S3Server, source: str, tmp_path: Path
) -> None:
    """It ends with one error, nothing has a final name, and resume continues where it ended.

    A unit whose upload was aborted meanwhile is read again, and this is reported.
    """
    place = server.place("stays")
    with faulty(server, Rule("begin", "cut", FOR_EVER, key="0002")) as (broken, _):
        error = command.error_of(*run(source, broken.place("stays"), "--retries", "0"), status=7)
    assert "stays" in error or "unit" in error
    assert not files_of(server.objects("stays/"))
    page = tmp_path / "page.html"
    command.run("report", place, "--output", str(page))
    assert "InternalError" in page.read_text() or "0002" in page.read_text()
    finished = [key for key in server.uploads("stays/") if "0002" not in key]
    server.abort(finished[0])
    done = command.ended("resume", place)
    assert done.returncode == 0, done.stderr
    name = finished[0].rpartition("/")[2]
    assert f"was finished but is read again: the upload of {name} does not exist" in done.stderr
    command.run("verify", place, source)
    assert server.uploads("stays/") == []


def killed(running: command.Running) -> None:
    """Kill a run with all its workers."""
    os.killpg(running.process.pid, signal.SIGKILL)
    running.process.communicate()


def finished_units(server: S3Server, key: str) -> int:
    """Count the units that the journal of a run has as finished."""
    lines = b"".join(
        data for name, data in server.objects(f"{key}/").items() if "journal.jsonl" in name
    )
    return lines.count(b'"event":"staged"')


def test_a_killed_run_is_resumed(
    server: S3Server, source: str, on_disk: Callable[..., _Files]
) -> None:
    """Finished units are kept, interrupted uploads are aborted, by any way to the store."""
    options = ("--parallelism", "1", "--unit-bytes", "32MB")
    with faulty(server, Rule("part", "held", FOR_EVER, key="0002")) as (held, _):
        running = command.Forked(*run(source, held.place("killed"), *options))
        running.wait_until(
            lambda: (
                finished_units(server, "killed") > 0
                and any("0002" in key for key in server.uploads("killed/"))
            ),
            "a finished unit, and another one begun",
        )
        killed(running)
    place = server.place("killed")
    assert not files_of(server.objects("killed/"))
    assert server.uploads("killed/")
    found = json.loads(command.run("status", place, "--json", status=7))
    assert found["state"] == "interrupted"
    command.run("resume", place)
    check_like_on_disk(server.objects("killed/"), on_disk(*options))
    assert server.uploads("killed/") == []


@pytest.mark.long("runs into object stores")
def test_clean_removes_what_a_killed_run_has_left(server: S3Server, source: str) -> None:
    """Staged objects, records and broken-off uploads go; a run that lives is left alone."""
    place = server.place("cleaned")
    with faulty(server, Rule("part", "held", FOR_EVER)) as (held, _):
        running = command.Forked(*run(source, held.place("cleaned"), "--parallelism", "1"))
        running.wait_until(lambda: bool(server.uploads("cleaned/")), "an upload in parts")
        error = command.error_of("clean", place, status=6)
        assert "a run is writing to" in error
        killed(running)
    assert server.uploads("cleaned/")
    dry = json.loads(command.run("clean", place, "--dry-run", "--json"))
    assert dry["files"] >= 1
    assert server.uploads("cleaned/")
    command.run("clean", place)
    assert server.objects("cleaned/") == {}
    assert server.uploads("cleaned/") == []


@MORE
def test_two_runs_at_once(server: S3Server, source: str) -> None:
    """The second gets the owner of the place; the first can be asked to end, and leaves nothing."""
    place = server.place("twice")
    with faulty(server, Rule("part", "held", FOR_EVER)) as (held, _):
        running = command.Forked(*run(source, held.place("twice"), "--parallelism", "1"))
        running.wait_until(lambda: bool(server.uploads("twice/")), "an upload in parts")
        error = command.error_of(*run(source, place, "--overwrite"), status=6)
        assert "another run is writing to" in error
        command.run("stop", place)
        assert running.finish()[0] == 130
    assert not files_of(server.objects("twice/"))


@MORE
def test_parts_and_several_tables(server: S3Server, source: str, tmp_path: Path) -> None:
    """Places within places: one for each table, and one for each part of a plan."""
    command.run("run", source, "--schema", "main", "--to", server.place("many/{schema}.{table}"))
    command.run("verify", server.place("many"), source)
    assert "many/main.t/_manifest.json" in server.objects()
    plan = tmp_path / "plan.json"
    to = ("--to", server.place("parts"), "--unit-bytes", "4MB")
    command.run("plan", source, "--table", "t", *to, "--output", str(plan))
    for number in (1, 2):
        command.run("run", str(plan), "--part", f"{number}/2")
    command.run("merge", server.place("parts"))
    command.run("verify", server.place("parts"), source)


def test_a_table_within_the_place_of_another_is_refused(
    server: S3Server, source: str, tmp_path: Path
) -> None:
    """The second would take the objects of the first for its own, or the other way round."""
    job = tmp_path / "job.toml"
    outer, inner = server.place("within/a"), server.place("within/a/b")
    job.write_text(
        f'source = "{source}"\n'
        f'[[table]]\ntable = "t"\nto = "{outer}"\n'
        f'[[table]]\nquery = "SELECT 1 AS a"\nquery-name = "q"\nto = "{inner}"\n'
    )
    error = command.error_of("plan", str(job), status=2)
    assert re.search(r"directory of \S*t, s3://\S+/within/a[?.\s]", error), error


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/tmp/x,s3://b/y", "directories and an object store"),
        ("s3://key:hunter2@b/y", "contains credentials"),
        ("s3://b/y?secret_access_key=hunter2", "has no option secret_access_key"),
        ("s3://b/y?endpoint=http://u:hunter2@host", "contains credentials"),
        ("s3://b/y?endpoint=host", "not the address of a server"),
        ("s3://b/x//y", "empty part"),
        ("s3://", "does not name a bucket"),
        ("s3://b/y?kms_key=k", "only with KMS"),
        ("s3://b/y?storage_class", "cannot be read"),
        ("s3://b/x,s3://b/x/y", "is inside the other"),
    ],
)
def test_places_that_are_refused(source: str, place: str, expected: str) -> None:
    """Each is refused before anything is asked of a store, and no secret is repeated."""
    error = command.error_of("run", source, "--table", "t", "--to", place, status=2)
    assert expected in error
    assert "hunter2" not in error


@pytest.mark.long("runs into object stores")
def test_marks_of_objects(server: S3Server, source: str) -> None:
    """Storage class, encryption and tags are the ones that the place asks for."""
    more = "&storage_class=STANDARD_IA&sse=AES256&tag=team:dwh&tag=kind:extract"
    command.run(*run(source, server.place("marked", more)))
    client = server.client()
    for name in files_of(server.objects("marked/")):
        key = {"Bucket": server.bucket, "Key": f"marked/{name}"}
        head = client.head_object(**key)
        assert head["StorageClass"] == "STANDARD_IA"
        assert head["ServerSideEncryption"] == "AES256"
        tags = {each["Key"]: each["Value"] for each in client.get_object_tagging(**key)["TagSet"]}
        assert tags == {"team": "dwh", "kind": "extract"}
    for checksum in ("sha256", "crc64nvme"):  # Uploads that are completed, and copies.
        more = f"&sse=aws:kms&kms_key=alias/extracts&checksum={checksum}"
        command.run(*run(source, server.place(f"kms-{checksum}", more)))
        for name in files_of(server.objects(f"kms-{checksum}/")):
            head = client.head_object(Bucket=server.bucket, Key=f"kms-{checksum}/{name}")
            assert head["ServerSideEncryption"] == "aws:kms"
            assert head["SSEKMSKeyId"].endswith("alias/extracts")
