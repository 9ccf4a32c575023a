"""Rows in packets, in pieces of any size: native code and Python find the same values."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from unloader.errors import OutputFailed, SourceError
from unloader.sources.mysql import rows
from writers.large_rows import LargeRow, collected

SCHEMA = pa.schema(
    [
        ("whole", pa.uint64()),
        ("amount", pa.decimal128(20, 4)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
    ]
)
END = b"\x05\0\0\0\xfe\x00\x00\x02\x00"


def packet(payload: bytes) -> bytes:
    """Return a payload in as many packets as the protocol needs."""
    parts = []
    while len(payload) >= 0xFFFFFF:
        parts.append(b"\xff\xff\xff\0" + payload[:0xFFFFFF])
        payload = payload[0xFFFFFF:]
    return b"".join([*parts, len(payload).to_bytes(3, "little"), b"\0", payload])


def row_of(*values: bytes | None) -> bytes:
    """Return a row as the server sends it."""
    found = b""
    for value in values:
        if value is None:
            found += b"\xfb"
        elif len(value) < 251:
            found += bytes([len(value)]) + value
        else:
            size, mark = next(
                (size, mark)
                for size, mark in ((2, b"\xfc"), (3, b"\xfd"), (8, b"\xfe"))
                if len(value) < 256**size
            )
            found += mark + len(value).to_bytes(size, "little") + value
    return packet(found)


def read(data: bytes, batch_bytes: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a result that arrives in pieces of random sizes."""
    pieces, at = random.Random(seed), 0

    def fill(into: memoryview) -> int:
        nonlocal at
        size = min(len(into), len(data) - at, pieces.choice((1, 3, 100, 5000, 10**6)))
        assert size, "a read after the end of the result would wait for ever"
        into[:size] = data[at : at + size]
        at += size
        return size

    reader = rows.RowReader(fill, SCHEMA, batch_bytes)
    for batch in reader.batches():
        yield collected(batch) if isinstance(batch, LargeRow) else batch
    assert reader.last == END[4:]


@pytest.fixture(params=["native", "plain"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "plain":
        monkeypatch.setenv(rows.OVERRIDE, "")
    rows.native.cache_clear()
    if request.param == "native" and rows.native() is None:
        pytest.skip("the native library is not built")
    yield
    rows.native.cache_clear()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("batch_bytes", [300, 4096, 1 << 20])
@pytest.mark.parametrize("seed", range(5))
def test_every_value_is_read(batch_bytes: int, seed: int) -> None:
    """Batches have the rows in order, for NULL, empty and long values, at each size of a batch."""
    chosen = random.Random(seed)
    expected: list[tuple[object, ...]] = []
    data = b""
    for number in range(chosen.choice((0, 1, 700))):
        text = "ü€x" * chosen.choice((0, 1, 90, 400, 30_000 if number % 97 == 5 else 2))
        some = chosen.randbytes(chosen.choice((0, 1, 250, 251, 252)))
        values = [f"{2**64 - 1 - number}", f"{number}.2500", text, some, "2024-02-29"]
        for at in range(1, 5):
            if chosen.random() < 0.2:
                values[at] = None  # type: ignore[call-overload]
        expected.append(tuple(values))
        data += row_of(*(each.encode() if isinstance(each, str) else each for each in values))
    found = []
    for batch in read(data + END, batch_bytes, seed):
        batch.validate(full=True)
        found += [
            tuple(
                each if each is None or isinstance(each, (str, bytes)) else str(each)
                for each in row
            )
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]
    assert found == expected


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("length", [0xFFFFFF - 20, 0xFFFFFF, 2 * 0xFFFFFF + 5])
def test_a_row_in_several_packets(length: int) -> None:
    """Rows before and after it are whole, also if all arrive together."""
    some = (b"1", None, b"a", b"", None)
    long = (b"2", b"0", b"b" * length, b"c", None)
    data = row_of(*some) + row_of(*long) + row_of(*some) + END
    for batch_bytes in (4096, 64 << 20):
        found = pa.Table.from_batches(read(data, batch_bytes, 1)).to_pydict()
        assert [len(text) for text in found["text"]] == [1, length, 1]
        assert found["bytes"] == [b"", b"c", b""]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((b"-1", None, None, None, None), "column whole"),
        ((b"1", b"1.23456", None, None, None), "column amount"),
        ((b"1", None, None, None, b"0000-00-00"), "column day: 0000-00-00"),
        ((b"1", None, b"\xff", None, None), "column text holds text that is not valid UTF-8"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(
    values: tuple[bytes | None, ...], words: str
) -> None:
    with pytest.raises(OutputFailed, match=words):
        list(read(row_of(*values) + END, 4096, 1))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("payload", [b"\x01", b"\x011\xfb\xfb\xfb\xfb\xfb", b"\xfc\x01"])
def test_a_malformed_row_is_refused(payload: bytes) -> None:
    """A row has as many values as the result has columns, and ends with its packet."""
    with pytest.raises(SourceError):
        list(read(packet(payload) + END, 4096, 1))
