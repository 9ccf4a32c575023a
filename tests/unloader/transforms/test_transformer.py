"""Transforms of batches: columns, types, order, and rows that fall into batches in any way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from masking.one_batch import OneBatch

from unloader.errors import OutputFailed, UsageError
from unloader.transforms.model import MaskingKey, Step, TransformOptions
from unloader.transforms.transformer import Together, check
from writers.large_rows import LargeRow
from writers.schema import INFINITE

KEYS = {"k": bytes(range(32))}


def rows(count: int) -> pa.RecordBatch:
    """Return rows of many types, with nulls, repeated values and empty texts."""
    pick = random.Random(7)
    some = [None, *range(40)]
    return pa.record_batch(
        {
            "id": pa.array(range(count), pa.int64()),
            "customer": pa.array([pick.choice(some) for _ in range(count)], pa.int32()),
            "name": pa.array([pick.choice([None, "", "é", "Ann", "Bob"]) for _ in range(count)]),
            "kind": pa.array([pick.choice("abc") for _ in range(count)]).dictionary_encode(),
            "card": pa.array([f"4{pick.randrange(99):015}" for _ in range(count)]),
            "amount": pa.array(
                [Decimal(pick.randrange(10**6)) / 100 for _ in range(count)], pa.decimal128(12, 2)
            ),
            "born": pa.array(
                [date(1950, 1, 1) + timedelta(pick.randrange(9999)) for _ in range(count)]
            ),
            "at": pa.array(
                [pick.randrange(10**15) for _ in range(count)], pa.timestamp("us", "UTC")
            ),
            "raw": pa.array([pick.randbytes(3) for _ in range(count)]),
        }
    )


EVERYTHING: tuple[Step, ...] = (
    Step(step="compute", column="label", sql="coalesce(name, '?') || '/' || kind"),
    Step(step="compute", column="amount", sql="amount * 2"),
    Step(step="shift-date", column="born", by="customer", key="k", days=20),
    Step(step="truncate-date", column="at", to="year"),
    Step(step="tokenize", column="customer", key="k"),
    Step(step="hmac", column="raw", key="k", length=12),
    Step(step="hmac", column="kind", key="k", encoding="base64"),
    Step(step="ff1", column="card", key="k"),
    Step(step="redact", column="name", value="x"),
    Step(step="truncate", column="label", characters=3),
    Step(step="constant", column="batch", value="7", type="int16"),
    Step(step="rename", names=(("id", "ID number"),)),
    Step(step="cast", column="ID number", type="decimal(20,0)"),
)


def pieces(batch: pa.RecordBatch, pick: random.Random) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of any size, empty ones among them."""
    at = 0
    while at < batch.num_rows:
        length = pick.choice([0, 1, 50, 200, 1000])
        yield batch.slice(at, length)
        at += length


def test_rows_are_the_same_however_they_fall_into_batches() -> None:
    """One by one, together, in one batch or in many, by one transformer or several."""
    batch = rows(1_500)
    transform = TransformOptions(steps=EVERYTHING)
    whole = pa.Table.from_batches([OneBatch(transform, batch.schema, KEYS).one(batch)])
    assert whole.num_rows == 1_500
    whole.validate(full=True)
    for seed in range(3):
        pick = random.Random(seed)
        one = OneBatch(transform, batch.schema, KEYS)
        each = [one.one(piece) for piece in pieces(batch, pick)]
        assert pa.Table.from_batches(each, whole.schema).equals(whole)
        together = list(one.apply(list(pieces(batch, pick))))
        assert pa.Table.from_batches(together, whole.schema).equals(whole)
        assert all(piece.num_rows for piece in together)
        one.close()


def test_batches_wait_for_each_other_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty ones do not count."""
    monkeypatch.setattr("unloader.transforms.transformer.TOGETHER_ROWS", 100)
    batch, held = rows(100), Together()
    assert [held.add(batch.slice(at, size)) for at, size in ((0, 60), (0, 0), (60, 40))] == [
        False,
        False,
        True,
    ]
    assert pa.Table.from_batches(held.take()).equals(pa.Table.from_batches([batch]))
    assert not held.take()


def test_columns_are_kept_renamed_and_set() -> None:
    """In the order of the steps, and names may differ in case alone."""
    batch = pa.record_batch({"A": [1], "a": [2], "B": ["x"]})
    steps = (
        Step(step="keep", columns=("b", "a", "A")),
        Step(step="rename", names=(("a", 'sel"ect'),)),
        Step(step="rename", names=(("A", "a"),)),
        Step(step="constant", column="c", value=None, type="timestamp[us, UTC]"),
        Step(step="constant", column="B", value="5", type="decimal(3,1)"),
        Step(step="keep", columns=("B", "a", "c")),
    )
    found = OneBatch(TransformOptions(steps=steps), batch.schema, {}).one(batch)
    assert found.to_pylist() == [{"B": Decimal("5.0"), "a": 1, "c": None}]
    assert found.schema.field("c").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(step="keep", columns=("A", "X")), "'X'"),
        (Step(step="keep", columns=("A", "A")), "twice"),
        (Step(step="rename", names=(("ab", "x"),)), "'ab'"),
        (Step(step="rename", names=(("A", "b"),)), "'b'"),
        (Step(step="rename", names=(("A", ""),)), "an empty name"),
        (Step(step="cast", column="A", type="number"), "'number'"),
        (Step(step="cast", column="A", type="decimal(39,0)"), "decimal"),
        (Step(step="constant", column="n", value="x", type="int8"), "int8"),
        (Step(step="hmac", column="nobody", key="k"), "'nobody'"),
    ],
)
def test_a_step_that_cannot_be_done_is_one_error(step: Step, words: str) -> None:
    """Before any row is read, with the name that is wrong."""
    schema = pa.schema([("A", pa.int64()), ("b", pa.string()), ("B", pa.string())])
    with pytest.raises(UsageError, match=words):
        check(TransformOptions(steps=(step,)), schema)


def test_names_that_come_twice_must_be_told_apart() -> None:
    """A query may give two columns of one name; no output may."""
    schema = pa.schema([("x", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
    with pytest.raises(UsageError, match="'x'"):
        check(TransformOptions(), schema)
    assert check(
        TransformOptions(steps=(Step(step="keep", columns=("y",)),)), schema
    ).schema.names == ["y"]


@pytest.mark.parametrize(
    ("array", "to"),
    [
        (pa.array([Decimal("1.5")]), "int64"),
        (pa.array([300]), "int8"),
        (pa.array([2**53 + 1]), "double"),
        (pa.array([0.125]), "decimal(5,2)"),
        (pa.array([2]), "bool"),
        (pa.array(["1.239"]), "decimal(5,2)"),
        (pa.array(["secret"]), "int64"),
        (pa.array([1], pa.timestamp("us")), "date"),
        (pa.array([2**31 - 5], pa.date32()), "timestamp"),
    ],
)
def test_a_cast_that_would_change_a_value_stops_the_run(array: pa.Array, to: str) -> None:
    """The column is named, and the value is not shown."""
    batch = pa.record_batch({"v": array})
    transformer = OneBatch(
        TransformOptions(steps=(Step(step="cast", column="v", type=to),)), batch.schema, {}
    )
    with pytest.raises(OutputFailed, match=r"\bv\b") as raised:
        transformer.one(batch)
    assert "secret" not in str(raised.value)


def test_a_cast_without_a_meaning_is_refused() -> None:
    """An instant is not a local time, and other types do not hold infinity."""
    infinite = pa.field("d", pa.date32(), metadata=INFINITE)
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), infinite, ("l", pa.list_(pa.int8()))])
    for name, to in (("t", "timestamp"), ("d", "timestamp"), ("l", "int8")):
        with pytest.raises(UsageError, match=rf"\b{name}\b"):
            check(TransformOptions(steps=(Step(step="cast", column=name, type=to),)), schema)


def test_a_column_says_where_it_comes_from() -> None:
    """The mask, its key, and columns that still have clear values of a masked one."""
    steps = (
        Step(step="compute", column="domain", sql="split_part(email, '@', 2)"),
        Step(step="hmac", column="email", key="k"),
        Step(step="compute", column="short", sql="email[:4]"),
        Step(step="rename", names=(("id", "number"),)),
        Step(step="cast", column="number", type="string"),
    )
    schema = pa.schema([("id", pa.int64()), ("email", pa.string()), ("other", pa.string())])
    key = MaskingKey(name="k", kind="file", place="/k", proof="00:ff")
    number, email, other, domain, short = check(
        TransformOptions(steps=steps, keys=(key,)), schema
    ).columns
    assert (number.inputs, number.changes, number.masked) == (("id",), ("cast to string",), None)
    assert email.masked is not None
    assert (email.masked.key_name, email.masked.key_proof) == ("k", "00:ff")
    assert (other.changes, other.masked, other.unmasked_inputs) == ((), None, ())
    assert domain.unmasked_inputs == ("email",)
    assert short.masked is not None
    assert (short.masked.method, short.unmasked_inputs) == ("derived", ())


class Endless:
    """A value that is too large for memory."""

    binary = False

    def pieces(self) -> Iterator[str]:
        """Yield its beginning."""
        yield "x"


def test_a_large_value_passes_where_no_step_looks_at_it() -> None:
    """It moves with its column, may be redacted, and is never taken for NULL."""
    row = pa.record_batch({"id": pa.array([1]), "doc": pa.array([None], pa.string())})
    large = LargeRow(row=row, values=((1, Endless()),))

    def done(*steps: Step) -> Any:
        return OneBatch(TransformOptions(steps=steps), row.schema, KEYS).apply_large(large)

    moved = done(
        Step(step="rename", names=(("doc", "text"),)), Step(step="keep", columns=("text", "id"))
    )
    assert [index for index, _ in moved.values] == [0]
    assert done(Step(step="redact", column="doc", value="-")).row.column("doc").to_pylist() == ["-"]
    assert done(Step(step="redact", column="doc", value="-")).values == ()
    assert done(Step(step="keep", columns=("id",))).values == ()
    for step in (
        Step(step="hmac", column="doc", key="k"),
        Step(step="truncate", column="doc", characters=3),
        Step(step="compute", column="n", sql="length(doc)"),
    ):
        with pytest.raises(OutputFailed, match="doc"):
            done(step)


CASTS: list[tuple[pa.Array, str, list[Any]]] = [
    (pa.array([1, None]), "decimal(38,2)", [Decimal("1.00"), None]),
    (pa.array(["1.25", "-0"]), "decimal(5,2)", [Decimal("1.25"), Decimal("0.00")]),
    (pa.array([Decimal("2.00")]), "int8", [2]),
    (pa.array([Decimal("0.00000001")], pa.decimal128(20, 8)), "string", ["0.00000001"]),
    (pa.array(["2024-02-29"]), "date", [date(2024, 2, 29)]),
    (pa.array([date(2024, 2, 29)]), "timestamp[s]", None),  # type: ignore[list-item]
    (pa.array([1.5, float("nan")]), "string", ["1.5", "NaN"]),
    (pa.array([True]), "int8", [1]),
    (pa.array(["a"]).dictionary_encode(), "string", ["a"]),
    (pa.array([b"a"]), "string", ["\\x61"]),
]


@pytest.mark.parametrize(("array", "to", "values"), CASTS)
def test_a_cast_is_exact(array: pa.Array, to: str, values: list[Any] | None) -> None:
    """Text is what CSV has for a value."""
    batch = pa.record_batch({"v": array})
    found = OneBatch(
        TransformOptions(steps=(Step(step="cast", column="v", type=to),)), batch.schema, {}
    ).one(batch)
    found.validate(full=True)
    if values is not None:
        assert found.column(0).to_pylist() == values
