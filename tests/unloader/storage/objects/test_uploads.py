"""Uploads to final names, the journal in objects, and the promises of a store."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from object_stores.faults import Rule, faulty
from object_stores.s3_server import S3Server
from publications.storage_promises import check_storage

from unloader.errors import OutputFailed
from unloader.storage.objects import object_publishing, object_storage
from unloader.storage.objects.object_staging import Journal, Room
from unloader.storage.objects.object_storage import ObjectRun, ObjectStorage
from unloader.storage.storage_protocol import JOURNAL, MANIFEST, Claim, Index, Move, RunStorage
from writers.errors import WriteError
from writers.files.sink import Sink
from writers.model import Compression
from writers.objects import bucket, s3_requests
from writers.objects.bucket import Bucket
from writers.objects.location import Location


def claim(place: str, run_id: str, names: str = "t.*.csv") -> Claim:
    """Return what a run asks for."""

    def read_index(data: bytes, home: str) -> Index:
        document = json.loads(data)
        files = tuple((0, name) for name in document["files"])
        return Index(run_id=document["run_id"], places=(home,), files=files)

    return Claim(
        places=(place,), run_id=run_id, overwrite=True, read_index=read_index, names=(names,)
    )


def uploaded(run: ObjectRun, name: str, text: str) -> Move:
    """Upload a file to its final name."""
    target = Location.parse(run.places[0]).below(name)
    sink = Sink(target, compression=Compression(), buffer_bytes=1024, buffers=2, held=True)
    sink.write(text.encode())
    sink.close()
    return Move(0, f"{name}-a1.part", name, sink.upload)


def manifest(run_id: str, moves: Sequence[Move]) -> bytes:
    """Return a manifest, as far as a storage reads it."""
    return json.dumps({"run_id": run_id, "files": [move.final for move in moves]}).encode()


@pytest.mark.parametrize("way", ["next run", "clean", "another attempt"])
def test_only_uploads_of_runs_are_aborted(s3: S3Server, way: str) -> None:
    """Of names that a run there gives, also where the next one died before it came to them."""
    key = f"uploads/others-{way.replace(' ', '-')}"
    place = s3.place(key)
    client = s3.client()
    for name in ("mine.txt", "t.csv.gz", "deeper/t.1.csv", "t.1.csv/more"):
        client.create_multipart_upload(Bucket=s3.bucket, Key=f"{key}/{name}")
    others = sorted(s3.uploads(f"{key}/"))
    run = ObjectStorage().take(claim(place, "dead"))
    left = uploaded(run, "t.1.csv", "left")
    if way == "another attempt":
        kept = uploaded(run, "t.1.csv", "kept")
        run.discard("1-a1")
        run.commit([kept], manifest("dead", [kept]))
        assert s3.objects(f"{key}/")["t.1.csv"] == b"kept"
    run.close()
    if way != "another attempt":
        assert f"{key}/{left.final}" in s3.uploads(f"{key}/")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "unloader.storage.objects.object_storage.abort_uploads", lambda *_, **__: 1 / 0
            )
            with pytest.raises(ZeroDivisionError):
                ObjectStorage().take(claim(place, "dies at once", "u.*.csv"))
    if way == "clean":
        assert ObjectStorage().clear([place], dry_run=True).removed[0].files == 1
        ObjectStorage().clear([place], dry_run=False)
    if way == "next run":
        with ObjectStorage().take(claim(place, "next", "v.*.csv")) as following:
            assert any("1 staged file" in text for text in following.notices)
            following.abandon(None)
    assert sorted(s3.uploads(f"{key}/")) == others


def test_an_object_that_came_meanwhile_is_not_replaced(s3: S3Server) -> None:
    """The run is completed when the object is removed."""
    key = "uploads/meanwhile"
    place = s3.place(key)
    run = ObjectStorage().take(claim(place, "one"))
    moves = [uploaded(run, f"t.{number}.csv", f"of {number}") for number in range(3)]

    def come(*_: object) -> None:
        s3.client().put_object(Bucket=s3.bucket, Key=f"{key}/t.1.csv", Body=b"of somebody")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_publishing, "is_published", come)
        with pytest.raises(OutputFailed, match=r"another object was created at .*t\.1\.csv"):
            run.commit(moves, manifest("one", moves))
    run.abandon(None)
    run.close()
    there = s3.objects(f"{key}/")
    assert there["t.1.csv"] == b"of somebody"
    assert MANIFEST not in there
    s3.client().delete_object(Bucket=s3.bucket, Key=f"{key}/t.1.csv")
    assert [each.run_id for each in ObjectStorage().complete(place)] == ["one"]
    expected = {f"t.{number}.csv": f"of {number}".encode() for number in range(3)}
    assert s3.objects(f"{key}/") == {**expected, MANIFEST: manifest("one", moves)}


@pytest.mark.long("runs into object stores")
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_upload_that_is_gone_in_the_middle(s3: S3Server, overwrite: bool) -> None:
    """The publication cannot be finished; clean removes the files that have final names."""
    key = f"uploads/gone-{overwrite}"
    place = s3.place(key)
    if overwrite:
        with ObjectStorage().take(claim(place, "earlier")) as run:
            old = [uploaded(run, name, "old") for name in ("t.0.csv", "t.old.csv")]
            run.commit(old, manifest("earlier", old))
    # The server of these tests answers 500 for an upload that is gone, where others answer 404.
    with faulty(s3, Rule("complete", "no upload", 10, key=r"t\.2\.csv")) as (broken, _):
        run = ObjectStorage().take(claim(broken.place(key), "one"))
        moves = [uploaded(run, f"t.{number}.csv", f"of {number}") for number in range(3)]
        with pytest.raises(OutputFailed, match=r"an upload is missing: .*t\.2\.csv"):
            run.commit(moves, manifest("one", moves))
        run.close()
        with pytest.raises(OutputFailed, match="an upload is missing"):
            ObjectStorage().complete(broken.place(key))
        ObjectStorage().clear([broken.place(key)], dry_run=False)
    assert s3.objects(f"{key}/") == {}
    assert s3.uploads(f"{key}/") == []


def test_an_upload_that_is_gone_before(s3: S3Server) -> None:
    """Nothing is begun: an earlier run stands as it was."""
    place = s3.place("uploads/before")
    with ObjectStorage().take(claim(place, "earlier")) as run:
        old = [uploaded(run, "t.0.csv", "old")]
        run.commit(old, manifest("earlier", old))
    before = s3.objects("uploads/before/")
    with ObjectStorage().take(claim(place, "one")) as run:
        move = uploaded(run, "t.0.csv", "new")
        assert move.upload is not None
        lost = move._replace(upload=replace(move.upload, id="lost"))
        with pytest.raises(WriteError, match=r"the upload of t\.0\.csv is not in"):
            run.commit([lost], manifest("one", [lost]))
        run.abandon(None)
    assert s3.objects("uploads/before/") == before
    assert s3.uploads("uploads/before/") == []


def test_lines_stay_in_order(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many objects they are in, and where those are made one."""
    monkeypatch.setattr("unloader.storage.objects.object_staging._MOST_PIECES", 7)
    room = Room(s3.place("journal/order"))
    lines = [b"line %d\n" % number for number in range(100)]
    written = Journal(room, "run")
    for number, line in enumerate(lines):
        written.append(line)
        if number % 3:
            written.settle()
    written.close()
    assert room.read_record("run", JOURNAL) == b"".join(lines)
    assert len(room.bucket.within(room.record("run", "journal.jsonl/"))) <= 8
    again = Journal(room, "run")
    again.replace(b"anew\n")
    again.append(b"more\n")
    again.close()
    assert room.read_record("run", JOURNAL) == b"anew\nmore\n"


def test_a_line_that_is_not_written_is_reported(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next append and the next wait report that the store refused."""
    monkeypatch.setitem(bucket._RETRIES, "max_retries", 2)
    rules = Rule("put", "broken", 10**6, key="journal.jsonl")
    with faulty(s3, rules) as (broken, _):
        written = Journal(Room(broken.place("journal/broken")), "run")
        written.append(b"1\n")
        with pytest.raises(WriteError, match="journal"):
            written.settle()
        with pytest.raises(WriteError, match="journal"):
            written.append(b"2\n")
        written.close()


class Killed(BaseException):
    """The end of the process."""


_COMMON = (
    (object_publishing, "is_published", 1),
    (Bucket, "delete", 1),
    (Bucket, "put_new", 1),
    (Bucket, "delete", 2),
    (object_storage, "sweep", 1),
)
"""Steps of each publication that replaces a run: where they are, and the number of the call."""


@pytest.mark.long("runs into object stores")
@pytest.mark.parametrize(
    ("several", "uploads", "steps"),
    [
        (1, False, ((Bucket, "copy", 1), *_COMMON)),
        (2, False, ((Bucket, "copy", 2),)),
        (2, True, ((s3_requests, "complete", 2), (object_storage, "sweep", 1))),
    ],
)
def test_prefixes(
    s3: S3Server, several: int, uploads: bool, steps: tuple[tuple[Any, str, int], ...]
) -> None:
    """Prefixes keep all promises, one or two, wherever a publication is interrupted."""
    key = f"contract/{several}-{uploads}"
    places = [s3.place(f"{key}/{number}/out") for number in range(several)]

    def cut_at(
        step: tuple[Any, str, int], run: RunStorage, moves: Sequence[Move], manifest: bytes
    ) -> None:
        owner, name, number = step
        real, calls = getattr(owner, name), itertools.count(1)

        def dying(*args: Any, **options: Any) -> Any:
            if next(calls) >= number:
                raise Killed
            return real(*args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, dying)
            with pytest.raises(Killed):
                run.commit(moves, manifest)

    cuts = [partial(cut_at, step) for step in steps]
    check_storage(ObjectStorage(), places, cuts=cuts, uploads=uploads)
    assert not [each for each in s3.objects(f"{key}/") if "_run" in each]
    assert s3.uploads(f"{key}/") == []
