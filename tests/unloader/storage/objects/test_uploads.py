"""Uploads to final names: their runs, and obstacles to their completion."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from object_stores.faults import Rule, faulty
from object_stores.s3_server import S3Server

from unloader.errors import OutputFailed
from unloader.storage.objects import object_publishing
from unloader.storage.objects.object_storage import ObjectRun, ObjectStorage
from unloader.storage.storage_protocol import MANIFEST, Claim, Index, Move
from writers.errors import WriteError
from writers.files.sink import Sink
from writers.model import Compression
from writers.objects.location import Location


def claim(place: str, run_id: str, names: str = "t.*.csv") -> Claim:
    """Return what a run asks for."""

    def read_index(data: bytes, home: str) -> Index:
        document = json.loads(data)
        files = tuple((0, name) for name in document["files"])
        return Index(run_id=document["run_id"], places=(home,), files=files)

    return Claim(places=(place,), run_id=run_id, overwrite=True, read_index=read_index, names=names)


def uploaded(run: ObjectRun, name: str, text: str) -> Move:
    """Upload a file to its final name."""
    target = Location.parse(run.staging(0).finals).below(name)
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
        patch.setattr(object_publishing, "_remove_manifests", come)
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
