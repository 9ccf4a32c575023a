"""Masks: known answers, and the same token for the same value wherever it stands."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from masking.one_batch import OneBatch

from unloader.errors import OutputFailed, UsageError
from unloader.transforms.model import Step, TransformOptions
from unloader.transforms.transformer import check
from writers.schema import INFINITE

KEY = bytes(range(32))
NUMBER = {"text_class": "number"}
UTC = UTC


def masked(array: pa.Array, mask: Step, *, key: bytes = KEY, **metadata: str) -> list[Any]:
    """Return what becomes of the values of a column `v`."""
    field = pa.field("v", array.type, metadata=metadata or None)
    batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))
    transform = TransformOptions(steps=(mask,))
    found = OneBatch(transform, batch.schema, {"k": key}).one(batch)
    assert found.schema == check(transform, batch.schema).schema
    found.validate(full=True)
    values: list[Any] = found.column(0).to_pylist()
    return values


RFC_4231 = [
    (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
    (
        b"\xaa" * 20,
        b"\xdd" * 50,
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
    ),
    (
        bytes(range(1, 26)),
        b"\xcd" * 50,
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
    ),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    (
        b"\xaa" * 131,
        b"This is a test using a larger than block-size key and a larger than block-size data. "
        b"The key needs to be hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
    ),
]


@pytest.mark.parametrize(("key", "data", "digest"), RFC_4231)
def test_hashes_are_the_known_answers_of_rfc_4231(key: bytes, data: bytes, digest: str) -> None:
    """Its test cases with long enough keys; a shorter hash is the beginning."""
    assert masked(pa.array([data]), Step(step="hmac", column="v", key="k"), key=key) == [digest]
    cut = Step(step="hmac", column="v", key="k", length=16)
    assert masked(pa.array([data]), cut, key=key) == [digest[:16]]


NIST_KEY = bytes.fromhex("2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94")
DIGITS, LETTERS = "0123456789", "0123456789abcdefghi"
FF1_SAMPLES = [
    (16, "", DIGITS, "2433477484"),
    (16, "9876543210", DIGITS, "6124200773"),
    (16, "7777pqrs777", LETTERS, "a9tv40mll9kdu509eum"),
    (24, "", DIGITS, "2830668132"),
    (24, "9876543210", DIGITS, "2496655549"),
    (24, "7777pqrs777", LETTERS, "xbj3kv35jrawxv32ysr"),
    (32, "", DIGITS, "6657667009"),
    (32, "9876543210", DIGITS, "1001623463"),
    (32, "7777pqrs777", LETTERS, "xs8a0azh2avyalyzuwd"),
]


@pytest.mark.parametrize(("size", "tweak", "clear", "cipher"), FF1_SAMPLES)
def test_encryption_gives_the_known_answers_of_nist(
    size: int, tweak: str, clear: str, cipher: str
) -> None:
    """The nine samples of FF1 that NIST publishes for SP 800-38G."""
    alphabet = "digits" if clear == DIGITS else "digits-lower"
    mask = Step(step="ff1", column="v", key="k", tweak=tweak, alphabet=alphabet)
    assert masked(pa.array([clear, None]), mask, key=NIST_KEY[:size]) == [cipher, None]


def test_encryption_keeps_the_format() -> None:
    """Hyphens stay where they are, whole numbers stay whole numbers, digits stay digits."""
    mask = Step(step="ff1", column="v", key="k", others="keep")
    plain = masked(pa.array(["4111111111111111"]), mask)[0]
    grouped = masked(pa.array(["4111-1111-1111-1111"]), mask)[0]
    assert [len(each) for each in grouped.split("-")] == [4, 4, 4, 4]
    assert grouped.replace("-", "") == plain
    numbers = Step(step="ff1", column="v", key="k", digits=16)
    for kind in (pa.int64(), pa.decimal128(20, 0)):
        array = pa.array([4111111111111111, 7, 4111111111111111, None], pa.int64()).cast(kind)
        first, small, again, null = masked(array, numbers)
        assert first == again == int(plain)
        assert 0 <= small < 10**16
        assert null is None


@pytest.mark.parametrize(
    ("value", "mask"),
    [
        ("12345", Step(step="ff1", column="v", key="k")),
        ("", Step(step="ff1", column="v", key="k")),
        ("1234-567", Step(step="ff1", column="v", key="k")),
        ("12-34-5", Step(step="ff1", column="v", key="k", others="keep")),
        ("٣٣٣٣٣٣٣", Step(step="ff1", column="v", key="k")),
        (-1234567, Step(step="ff1", column="v", key="k", digits=7)),
        (12345678, Step(step="ff1", column="v", key="k", digits=7)),
    ],
)
def test_what_cannot_be_encrypted_stops_the_run(value: object, mask: Step) -> None:
    """Fewer than 1,000,000 possible values, other characters, other numbers; nothing is shown."""
    with pytest.raises(OutputFailed, match="column v") as raised:
        masked(pa.array([value]), mask)
    assert not value or str(value) not in str(raised.value)
    assert raised.value.__cause__ is None


EQUAL_TEXTS = [
    ("-1.5", pa.array([Decimal("-1.50")], pa.decimal128(5, 2)), {}),
    ("0", pa.array([Decimal("0.00")], pa.decimal128(5, 2)), {}),
    ("0", pa.array(["-0.0"]), NUMBER),
    ("100", pa.array([Decimal("100")], pa.decimal128(5, 0)), {}),
    ("0.0000001", pa.array([Decimal("0.0000001")], pa.decimal128(20, 10)), {}),
    ("1" + "0" * 100, pa.array(["1E+100"]), NUMBER),
    ("NaN", pa.array(["NaN"]), NUMBER),
    ("true", pa.array([True]), {}),
    ("2024-01-31", pa.array([date(2024, 1, 31)]), {}),
    ("0044-03-15 BC", pa.array([-735160], pa.date32()), {}),
    ("infinity", pa.array([2**31 - 1], pa.date32()), INFINITE),
    ("2024-01-31 23:59:59.5", pa.array([datetime(2024, 1, 31, 23, 59, 59, 500000)]), {}),
    ("2024-01-31 23:59:59", pa.array([datetime(2024, 1, 31, 23, 59, 59)], pa.timestamp("s")), {}),
    ("2024-01-31 23:59:59+00:00", pa.array([datetime(2024, 1, 31, 23, 59, 59, tzinfo=UTC)]), {}),
    ("é\U0001f600 ", pa.array(["é\U0001f600 "]), {}),
    ("", pa.array([""]), {}),
]


@pytest.mark.parametrize(("text", "array", "metadata"), EQUAL_TEXTS)
def test_a_hash_is_that_of_the_documented_text(
    text: str, array: pa.Array, metadata: dict[str, str]
) -> None:
    """So that anybody can compute it again: HMAC-SHA-256 of the text in UTF-8."""
    expected = hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()
    assert masked(array, Step(step="hmac", column="v", key="k"), **metadata) == [expected]


def test_tokens_are_told_apart_by_key_domain_and_value() -> None:
    """NULL stays NULL."""
    array = pa.array(["a", "b", None, "a"])
    plain = masked(array, Step(step="tokenize", column="v", key="k"))
    assert plain[0] == plain[3] != plain[1]
    assert plain[2] is None
    other = masked(array, Step(step="tokenize", column="v", key="k", domain="order"))
    third = masked(array, Step(step="tokenize", column="v", key="k"), key=bytes(32))
    hashes = masked(array, Step(step="hmac", column="v", key="k"))
    assert len({plain[0], other[0], third[0], hashes[0][:32]}) == 4
    assert {len(each) for each in (plain[0], other[0], third[0])} == {32}


def test_tokens_stay_as_they_are() -> None:
    """Tokens of one night join tokens of the next, so their computation never changes."""
    array = pa.array(["customer"])
    domain = hmac.new(KEY, b"unloader tokenize 1\0people", hashlib.sha256).digest()
    digest = hmac.new(domain, b"customer", hashlib.sha256).digest()
    for form, expected in (
        ("text", digest[:16].hex()),
        ("integer", int.from_bytes(digest[:8], "big") & (2**63 - 1)),
    ):
        mask = Step(step="tokenize", column="v", key="k", domain="people", form=form)  # type: ignore[arg-type]
        assert masked(array, mask) == [expected]
    uuids = masked(array, Step(step="tokenize", column="v", key="k", domain="people", form="uuid"))
    found = uuid.UUID(uuids[0])
    assert found.variant == uuid.RFC_4122
    assert found.hex[:12] == digest.hex()[:12]
    assert found.hex[12] == "8"


def shifted(dates: pa.Array, subjects: pa.Array, days: int = 30, **metadata: str) -> list[Any]:
    """Return dates that are shifted by a column of subjects."""
    schema = pa.schema(
        [pa.field("d", dates.type, metadata=metadata or None), pa.field("s", subjects.type)]
    )
    batch = pa.RecordBatch.from_arrays([dates, subjects], schema=schema)
    step = Step(step="shift-date", column="d", by="s", key="k", days=days)
    array = OneBatch(TransformOptions(steps=(step,)), schema, {"k": KEY}).one(batch).column(0)
    found: list[Any] = array.view(
        pa.int32() if dates.type.bit_width == 32 else pa.int64()
    ).to_pylist()
    return found


def test_shifted_dates_keep_the_intervals_of_a_subject() -> None:
    """All dates of a subject move by the same days, never by none, and never by more than asked."""
    begin = [date(2024, 2, 28) + timedelta(days=each) for each in range(400)]
    subjects = pa.array([each % 100 for each in range(400)])
    moved = shifted(pa.array(begin), subjects)
    gone = [new - (old - date(1970, 1, 1)).days for new, old in zip(moved, begin, strict=True)]
    assert gone[:100] == gone[100:200] == gone[300:]
    assert min(gone) >= -30
    assert max(gone) <= 30
    assert 0 not in gone
    assert len(set(gone)) > 30
    other = shifted(
        pa.array(begin[:100]).cast(pa.timestamp("us")), pa.array(range(100), pa.int16())
    )
    assert [each // 86_400_000_000 for each in other] == moved[:100]


def test_a_date_without_a_subject_becomes_null_and_infinity_stays() -> None:
    """Without a subject no clear date remains."""
    dates = pa.array([0, 0, None, 2**31 - 1, -(2**31) + 1], pa.date32())
    found = shifted(dates, pa.array(["a", None, "a", "a", "b"]), **INFINITE)
    assert found[0] not in (None, 0)
    assert found[1:] == [None, None, 2**31 - 1, -(2**31) + 1]


def test_a_date_that_would_leave_its_type_stops_the_run() -> None:
    """It does not come out at the other end of the range."""
    for last in (
        pa.array([2**63 - 1 - 10**9] * 50, pa.timestamp("us")),
        pa.array([2**31 - 2] * 50, pa.date32()),
    ):
        with pytest.raises(OutputFailed, match="range"):
            shifted(last, pa.array(range(50)))


FAR = [-800_000, -719_528, -1, 0, 19_782, 20_088, 2_932_896, 40_000_000, 106_000_000]
"""Days before Christ, of year 0, of a leap year, of 9999, and of years past 32767."""


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("s"), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("days", [FAR, [-1, 0, 19_782, 20_088, None], []])
def test_dates_are_cut_to_month_and_year(kind: pa.DataType, days: list[int | None]) -> None:
    """In every year that the type has, by one calendar."""
    scale = 1 if kind == pa.date32() else 86_400 * (1 if kind.unit == "s" else 10**6)
    past = 0 if kind == pa.date32() else scale // 3
    width = pa.int32() if kind == pa.date32() else pa.int64()
    ticks = [None if each is None else each * scale + past for each in days]
    array = pa.array(ticks, width).view(kind)
    for to in ("month", "year"):
        schema = pa.schema([pa.field("v", kind)])
        step = Step(step="truncate-date", column="v", to=to)  # type: ignore[arg-type]
        batch = pa.RecordBatch.from_arrays([array], schema=schema)
        found = OneBatch(TransformOptions(steps=(step,)), schema, {}).one(batch).column(0)
        expected = [None if each is None else first_day(each, to) * scale for each in days]
        assert found.view(width).to_pylist() == expected


def first_day(day: int, to: str) -> int:
    """Return the first day of a day's month or year, counted within one cycle of 400 years."""
    cycles, within = divmod(day + 719_162, 146_097)
    known = date(1, 1, 1) + timedelta(days=within)
    first = known.replace(day=1, month=known.month if to == "month" else 1)
    return (first - date(1, 1, 1)).days + cycles * 146_097 - 719_162


def test_a_redacted_column_has_one_value() -> None:
    """Also in place of NULL, which would tell something; and keeps its type."""
    assert masked(pa.array(["a", None]), Step(step="redact", column="v", value="x")) == ["x", "x"]
    assert masked(pa.array([1, None], pa.int8()), Step(step="redact", column="v")) == [None, None]
    dates = pa.array([date(2024, 1, 1), None])
    assert (
        masked(dates, Step(step="redact", column="v", value="1900-01-01")) == [date(1900, 1, 1)] * 2
    )


@pytest.mark.parametrize(
    ("kind", "mask"),
    [
        (pa.float64(), Step(step="hmac", column="v", key="k")),
        (pa.list_(pa.int8()), Step(step="tokenize", column="v", key="k")),
        (pa.int64(), Step(step="truncate", column="v", characters=3)),
        (pa.string(), Step(step="truncate-date", column="v", to="month")),
        (pa.int64(), Step(step="ff1", column="v", key="k")),
        (pa.decimal128(5, 2), Step(step="ff1", column="v", key="k", digits=8)),
        (pa.int64(), Step(step="redact", column="v", value="x")),
        (pa.string(), Step(step="hmac", column="v", key="k", length=4)),
        (pa.date32(), Step(step="shift-date", column="v", by="v", key="k", days=3)),
    ],
)
def test_a_mask_that_does_not_suit_is_told_before_the_run(kind: pa.DataType, mask: Step) -> None:
    """With the column's name, and no key is needed for it."""
    with pytest.raises(UsageError, match=r"\bv\b"):
        check(TransformOptions(steps=(mask,)), pa.schema([pa.field("v", kind)]))


def test_a_masked_column_says_how_and_by_which_key() -> None:
    """The class of its text is not kept."""
    schema = pa.schema([pa.field("v", pa.string(), metadata=NUMBER)])
    found = check(TransformOptions(steps=(Step(step="hmac", column="V", key="k"),)), schema)
    assert found.schema.field("v").metadata is None
    column = found.columns[0]
    assert column.masked is not None
    assert (column.masked.method, column.masked.key_name) == ("hmac", "k")
    assert column.output_type == "string"


@pytest.mark.parametrize("to", ["month", "year"])
def test_dates_are_cut_alike_in_whatever_batches_they_come(to: str) -> None:
    """Few days, many days, days far away, and none at all."""
    spans = [(-3, 40), (0, 20_000), (5_000, 5_001), (-134_774, -134_000), (-25_000, 60_000)]
    field = pa.field("v", pa.date32())
    step = Step(step="truncate-date", column="v", to="month" if to == "month" else "year")
    transformer = OneBatch(TransformOptions(steps=(step,)), pa.schema([field]), {})
    first = date(1970, 1, 1)
    cut = {"day": 1} if to == "month" else {"day": 1, "month": 1}
    for low, high in spans:
        given = [first + timedelta(days=day) for day in range(low, high, 1 + (high - low) // 300)]
        batch = pa.RecordBatch.from_arrays([pa.array([None, *given], pa.date32())], names=["v"])
        found = transformer.one(batch).column(0)
        assert found.to_pylist() == [None, *(each.replace(**cut) for each in given)]
    nothing = pa.RecordBatch.from_arrays([pa.nulls(3, pa.date32())], names=["v"])
    assert transformer.one(nothing).column(0).null_count == 3


@pytest.mark.parametrize("text", ["plain ", "Zoë ", "🦆"])
def test_texts_in_pieces_are_cut_as_whole_ones(text: str) -> None:
    """Batches that are worked on together are cut by characters, and keep their NULLs."""
    given = [
        [text * number if number % 5 else None for number in range(start, start + 9)]
        for start in (0, 50, 3)
    ]
    batches = [pa.RecordBatch.from_arrays([pa.array(each)], names=["v"]) for each in given]
    step = Step(step="truncate", column="v", characters=4)
    transformer = OneBatch(TransformOptions(steps=(step,)), batches[0].schema, {})
    found = [value for batch in transformer.apply(batches) for value in batch.column(0)]
    expected = [value and value[:4] for each in given for value in each]
    assert [value.as_py() for value in found] == expected
