"""Objects that are sent in parts, by the thread that writes."""

from __future__ import annotations

import pytest
from object_stores.faults import Rule, faulty
from object_stores.s3_server import S3Server

from writers.errors import StoreFailed, Superseded, WriteError
from writers.objects import upload
from writers.objects.bucket import Bucket
from writers.objects.location import Location
from writers.objects.upload import Upload

PART = 8 * 1024 * 1024


def opened(place: str, in_flight: int = 4) -> Upload:
    """Begin an object in parts of 8 MiB."""
    return Upload(Location.parse(place), buffer_bytes=1, in_flight=in_flight)


def test_memory_that_is_used_again(s3: S3Server) -> None:
    """What was given is what is sent, whatever the memory holds when it is sent."""
    memory = bytearray(1024 * 1024)
    expected = b""
    written = opened(s3.place("upload/again"))
    for number in range(35):
        memory[:] = bytes([number]) * len(memory)
        expected += bytes(memory)
        written.put([memoryview(memory)])
    memory[:] = b"x" * len(memory)
    written.finish()
    written.close()
    assert s3.objects("upload/")["again"] == expected


def test_nothing_is_there_before_the_end(s3: S3Server) -> None:
    """And nothing is left of what is given up."""
    written = opened(s3.place("upload/given-up"))
    written.put([b"1" * (3 * PART)])
    assert s3.uploads("upload/given-up")
    assert "given-up" not in s3.objects("upload/")
    written.interrupt()
    with pytest.raises(StoreFailed, match="was abandoned"):
        written.put([b"1"])
    written.close()
    assert "given-up" not in s3.objects("upload/")
    assert s3.uploads("upload/given-up") == []


def test_an_object_that_gets_too_large(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told before the store would say so after the last part."""
    monkeypatch.setattr(upload, "MOST_PARTS", 2)
    written = opened(s3.place("upload/large"))
    written.put([b"1" * PART, b"2" * PART])
    with pytest.raises(WriteError, match="needs more than 2 parts") as refused:
        written.put([b"3"])
    assert "--file-size" in refused.value.hint
    written.close()
    assert s3.uploads("upload/large") == []


def test_rights_that_are_missing_are_no_failure_of_the_moment(s3: S3Server) -> None:
    """Another attempt would not get past it."""
    location = Location.parse(s3.place("x")).store
    nowhere = Location(scheme="s3", bucket="no-such-bucket", key="x", options=location.options)
    with pytest.raises(WriteError, match="NoSuchBucket") as refused:
        Bucket(nowhere).put("x", b"1")
    assert not isinstance(refused.value, StoreFailed)


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
    """Backwards, over the end, and over the edges of what is asked for at once."""
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
