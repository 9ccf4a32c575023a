"""Objects in a store: places, uploads in parts, and uploads that wait for completion."""

from __future__ import annotations

import hashlib
import os

import pytest
from long_tests import OTHER_ROUTES, also
from msgspec.structs import replace
from object_stores.faults import Rule, faulty
from object_stores.s3_server import S3Server
from processes.command import wait_for

from writers.errors import FormatError, StoreFailed, Superseded, WriteError
from writers.model import UncompletedUpload
from writers.objects import s3_requests, upload
from writers.objects.bucket import Bucket
from writers.objects.location import Location, below, is_location
from writers.objects.upload import HeldUpload, Upload


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket",
        "s3://bucket/a/b c/%41",
        "gs://bucket/x?endpoint=http://127.0.0.1:4443",
        "az://container/x?account=me&endpoint=https://host/me",
        "s3://b/x?endpoint=https://h:9000&kms_key=arn:aws:kms:eu:1:key/2&sse=aws:kms",
        "s3://b/x?tag=a:b&tag=c:d",
    ],
)
def test_a_place_is_its_text(text: str) -> None:
    """The text of a place leads to the same place."""
    found = Location.parse(text)
    assert str(found) == text
    assert Location.parse(str(found)) == found
    assert is_location(text)


def test_places_within_a_place() -> None:
    """The options stay at the end; a whole text is another place."""
    place = Location.parse("s3://b/x/?endpoint=http://h")
    assert str(place / "y" / "z.csv") == "s3://b/x/y/z.csv?endpoint=http://h"
    assert str(place.parent) == "s3://b?endpoint=http://h"
    assert (place / "z.csv").name == "z.csv"
    assert str(place / "gs://c/d") == "gs://c/d"
    assert below("s3://b/x?region=r", "y") == "s3://b/x/y?region=r"
    assert below("/a/b/", "y") == "/a/b/y"
    assert not is_location("/a/s3://b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://u:hunter2@b/x", "credentials"),
        ("s3://b/x#hunter2", "credentials or a #"),
        ("s3://b/../x", "empty part"),
        ("s3://b/x?region=a&region=b", "appears twice"),
        ("s3://b/x?sse=none", "sse=none is unknown"),
        ("gs://b/x?sse=AES256", "has no option sse"),
        ("s3://b/x?tag=a", "is not a tag"),
        ("file:///x", "not a place in an object store"),
    ],
)
def test_what_is_no_place(text: str, expected: str) -> None:
    """It is refused with what to write instead, and no secret is repeated."""
    with pytest.raises(FormatError) as refused:
        Location.parse(text)
    assert expected in refused.value.message
    assert refused.value.hint
    assert "hunter2" not in str(refused.value)


PART = 8 * 1024 * 1024


def opened(place: str, in_flight: int = 4) -> Upload:
    """Begin an object in parts of 8 MiB."""
    return Upload(Location.parse(place), buffer_bytes=1, in_flight=in_flight)


def test_memory_that_is_used_again(s3: S3Server) -> None:
    """The given bytes are sent, also if the memory is reused meanwhile."""
    memory = bytearray(1024 * 1024)
    expected = b""
    written = opened(s3.place("upload/again"))
    for number in range(35):
        memory[:] = bytes([number]) * len(memory)
        expected += bytes(memory)
        written.put(memoryview(memory))
    memory[:] = b"x" * len(memory)
    written.finish()
    written.close()
    assert s3.objects("upload/")["again"] == expected


def test_an_object_that_gets_too_large(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported before the store would refuse the last part."""
    monkeypatch.setattr(upload, "MOST_PARTS", 2)
    written = opened(s3.place("upload/large"))
    written.put(b"1" * PART + b"2" * PART)
    with pytest.raises(WriteError, match="needs more than 2 parts") as refused:
        written.put(b"3")
    assert "--file-size" in refused.value.hint
    written.close()
    assert s3.uploads("upload/large") == []


def test_versions(s3: S3Server) -> None:
    """An object is replaced only as it was seen, and made only once."""
    bucket = Bucket(Location.parse(s3.place("versions")))
    first = bucket.put_new("versions/a", b"1")
    with pytest.raises(FileExistsError):
        bucket.put_new("versions/a", b"2")
    second = bucket.replace("versions/a", b"2", first)
    with pytest.raises(Superseded):
        bucket.replace("versions/a", b"3", first)
    assert bucket.read_version("versions/a") == (b"2", second)
    bucket.delete(["versions/a", "versions/never"])
    with pytest.raises(Superseded):
        bucket.replace("versions/a", b"3", second)
    with pytest.raises(FileNotFoundError):
        bucket.read("versions/a")


def test_reading_from_any_position(s3: S3Server) -> None:
    """Backwards, over the end, and over the edges of one request."""
    data = b"".join(b"%07d\n" % number for number in range(3 * 1024 * 1024))
    s3.client().put_object(Bucket=s3.bucket, Key="read/large", Body=data)
    with Bucket(Location.parse(s3.place("read"))).open("read/large") as file:
        assert file.seek(0, 2) == len(data)
        assert file.read(10) == b""
        for start in (0, 9_000_000, PART - 5, 3, len(data) - 7):
            file.seek(start)
            assert file.read(100) == data[start : start + 100]
        file.seek(0)
        assert file.read() == data


def test_a_read_that_is_cut_is_repeated(s3: S3Server) -> None:
    """As each request is."""
    s3.client().put_object(Bucket=s3.bucket, Key="cut/a", Body=b"abc")
    rules = (Rule("get", "cut", 2), Rule("get", "busy", 1), Rule("get", "throttled", 1))
    with faulty(s3, *rules) as (broken, faults):
        assert Bucket(Location.parse(broken.place("cut"))).read("cut/a") == b"abc"
    assert faults.all_done()


def opened_held(place: str) -> HeldUpload:
    """Begin an object in parts of 8 MiB."""
    return HeldUpload(Location.parse(place), buffer_bytes=1, in_flight=3)


def held(place: str, *pieces: bytes) -> UncompletedUpload:
    """Send an object; return what completes it."""
    written = opened_held(place)
    written.put(b"".join(pieces))
    written.finish()
    written.close()
    assert written.uncompleted is not None
    return written.uncompleted


@pytest.mark.parametrize(
    ("checksum", "size"),
    [
        *(("crc32c", 0), ("none", 1), ("sha256", PART), ("crc32c", 5 * PART + 17)),
        *also(OTHER_ROUTES, ("none", PART), ("sha256", 5 * PART + 17)),
    ],
)
def test_what_is_sent_is_there_once_it_is_completed(s3: S3Server, checksum: str, size: int) -> None:
    """Memory may be reused before the upload ends; the object appears only at its completion."""
    key = f"held/{checksum}/{size}"
    place = s3.place(key, f"&checksum={checksum}")
    written = opened_held(place)
    memory = bytearray(700_001)
    expected = hashlib.sha256()
    left = size
    while left:
        memory[:] = os.urandom(1000) * 700 + b"x"
        count = min(left, len(memory))
        expected.update(memoryview(memory)[:count])
        written.put(memoryview(memory)[:count])
        left -= count
    memory[:] = bytes(len(memory))
    written.finish()
    written.close()
    upload = written.uncompleted
    assert upload is not None
    assert upload.bytes == size == written.written
    assert [part.bytes for part in upload.parts[:-1]] == [PART] * (size // PART - (size == PART))
    assert s3.objects(key) == {}
    s3_requests.complete(Location.parse(place), upload, replaces=False)
    assert hashlib.sha256(s3.objects(key)[""]).digest() == expected.digest()
    assert s3.uploads(key) == []


@pytest.mark.parametrize("kind", [Upload, HeldUpload])
def test_nothing_is_left_of_an_abandoned_upload(
    s3: S3Server, kind: type[Upload] | type[HeldUpload]
) -> None:
    """Neither in the store nor of threads that send; nothing is there before the end."""
    key = f"abandoned/{kind.__name__}"
    written = kind(Location.parse(s3.place(key)), buffer_bytes=1, in_flight=4)
    written.put(b"1" * (3 * PART))
    # A held upload is begun by a thread.
    wait_for(lambda: bool(s3.uploads(key)), "an upload that is begun")
    written.interrupt()
    with pytest.raises(StoreFailed, match="was abandoned"):
        written.put(b"1" * PART)
    written.close()
    assert s3.objects(key) == {}
    assert s3.uploads(key) == []


def test_a_completion_is_made_once(s3: S3Server) -> None:
    """Anyone who does it again finds it done; another object in the way stays."""
    location = Location.parse(s3.place("held/once"))
    upload = held(str(location), b"1" * PART, b"2")
    for _ in range(2):
        s3_requests.complete(location, upload, replaces=False)
    with faulty(s3, Rule("complete", "no upload", 1)) as (broken, _):
        s3_requests.complete(Location.parse(broken.place("held/once")), upload, replaces=True)
    other = held(str(location), b"1" * PART, b"3")
    with pytest.raises(FileExistsError):
        s3_requests.complete(location, other, replaces=False)
    with (
        faulty(s3, Rule("complete", "no upload", 1)) as (broken, _),
        pytest.raises(FileNotFoundError),
    ):
        s3_requests.complete(Location.parse(broken.place("held/once")), other, replaces=True)
    assert s3.objects("held/once")[""][-1:] == b"2"
    s3_requests.complete(location, other, replaces=True)
    assert s3.objects("held/once")[""][-1:] == b"3"


@pytest.mark.long("runs into object stores")
def test_a_store_that_has_too_many_requests_is_asked_again(s3: S3Server) -> None:
    """By 429 as by 503: some stores say the one, some the other."""
    rules = [Rule(kind, "throttled") for kind in ("begin", "part", "complete", "put", "get")]
    with faulty(s3, *rules) as (broken, faults):
        location = Location.parse(broken.place("held/throttled"))
        upload = held(str(location), b"1" * PART, b"2")
        s3_requests.complete(location, upload, replaces=False)
        Bucket(location.parent).put("held/other", b"3")
        assert s3_requests.pending_uploads(location.parent) == []
        assert faults.all_done()
    assert s3.objects("held/throttled")[""] == b"1" * PART + b"2"
    assert s3.objects("held/other")[""] == b"3"


def test_a_completion_that_meets_a_store_at_work(s3: S3Server) -> None:
    """It is asked again where it is not done yet, and without a condition that it does not know."""
    for number, rule in enumerate((Rule("complete", "conflict"), Rule("complete", "unknown"))):
        key = f"held/busy/{number}"
        upload = held(s3.place(key), b"1")
        with faulty(s3, rule) as (broken, faults):
            s3_requests.complete(Location.parse(broken.place(key)), upload, replaces=False)
            assert faults.all_done()
        assert s3.objects(key)[""] == b"1"


def test_an_upload_that_was_changed_is_told(s3: S3Server) -> None:
    """A part that is another, is missing, or an upload that is gone."""
    location = Location.parse(s3.place("held/changed"))
    upload = held(str(location), b"1" * PART, b"2")
    s3_requests.compare(location, upload)
    first, last = upload.parts
    with pytest.raises(Superseded, match="part 2 of changed"):
        s3_requests.compare(location, replace(upload, parts=(first, replace(last, etag='"0"'))))
    with pytest.raises(Superseded, match="has 2 parts of changed, but 1"):
        s3_requests.compare(location, replace(upload, parts=(first,)))
    s3_requests.abort_uploads(location, s3_requests.pending_uploads(location.parent))
    with pytest.raises(Superseded, match="upload of changed does not exist any more"):
        s3_requests.compare(location, upload)


def test_a_part_that_arrived_as_another_costs_an_attempt(s3: S3Server) -> None:
    """It is a failure that another attempt may get past, and nothing is left of this one."""
    with faulty(s3, Rule("part", "other etag")) as (broken, faults):
        written = opened_held(broken.place("held/damaged"))
        written.put(b"1")
        with pytest.raises(StoreFailed, match="part 1 of damaged") as failed:
            written.finish()
        assert faults.all_done()
        written.close()
    assert not isinstance(failed.value, Superseded)
    assert written.uncompleted is None
    assert s3.uploads("held/damaged") == []


def test_a_missing_bucket_is_refused_for_good(s3: S3Server) -> None:
    """Another attempt would have the same answer, so the error is not a StoreFailed."""
    place = replace(Location.parse(s3.place("x")), bucket="no-such-bucket")
    for act in (
        lambda: Bucket(place.store).put("x", b"1"),
        lambda: s3_requests.begin(place, "SHA256"),
    ):
        with pytest.raises(WriteError, match="NoSuchBucket") as refused:
            act()
        assert not isinstance(refused.value, StoreFailed)
        assert "name of the bucket" in refused.value.hint


def test_uploads_of_others_are_not_listed(s3: S3Server) -> None:
    """On request only the uploads directly in a place are listed."""
    client = s3.client()
    for key in ("listed/a", "listed/b/c", "listedx"):
        client.create_multipart_upload(Bucket=s3.bucket, Key=key)
    place = Location.parse(s3.place("listed"))
    assert {each.key for each in s3_requests.pending_uploads(place)} == {"listed/a", "listed/b/c"}
    assert {each.key for each in s3_requests.pending_uploads(place, deep=False)} == {"listed/a"}
