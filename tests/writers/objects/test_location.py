"""Places in object stores, as they are written."""

from __future__ import annotations

import pytest

from writers.errors import FormatError
from writers.objects.location import Location, below, is_location


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
    """What is written down leads to the same place."""
    found = Location.parse(text)
    assert str(found) == text
    assert Location.parse(str(found)) == found
    assert is_location(text)


def test_places_within_a_place() -> None:
    """The options stay behind what is added; a whole text is another place."""
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
