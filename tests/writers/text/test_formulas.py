"""Texts that spreadsheets would run: a quote in front on request, and nothing else is touched."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from writers.large_rows import LargeRow
from writers.model import Compression, OutputSpec, TextFormat
from writers.text.formulas import FormulaGuard
from writers.text.text_writer import TextWriter


class InPieces:
    """A large text that comes in pieces, the first of them empty."""

    binary = False

    def __init__(self, text: str) -> None:
        """Take all of it."""
        self.text = text

    def pieces(self) -> Iterator[str]:
        """Read it from its start."""
        yield ""
        yield from (self.text[at : at + 7_000] for at in range(0, len(self.text), 7_000))


ENCODERS: tuple[Literal["native", "plain"], ...] = ("native", "plain")
DANGEROUS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    "＝1",
    "＋1",
    "－1",
    "＠x",
    "=",
    "-",
)
HARMLESS = ("", "a=1", "'=1", " =1", "1-1", "−1", "0", "\\=1", "é")


def expected(value: str | None) -> str | None:
    """Return what a text becomes, by a reading of the rule of its own."""
    if value and (value[0] in "=+-@" or value[0] in "\t\r\n" or value[0] in "＝＋－＠"):
        return "'" + value
    return value


def written(tmp_path: Path, rows: Any, **format: Any) -> bytes:
    """Return what a writer makes of a table, or of rows with large values."""
    encoder = format.pop("encoder", "auto")
    shape = TextFormat(guard_formulas=True, **format)
    spec = OutputSpec(
        directory=str(tmp_path), format=shape, compression=Compression(), encoder=encoder
    )
    table = rows if isinstance(rows, pa.Table) else None
    writer = TextWriter(spec, rows.schema if table is not None else rows[0].row.schema, "t")
    for batch in () if table is None else table.to_batches():
        writer.write(batch)
    for row in () if table is not None else rows:
        writer.write_large(row)
    (file,) = writer.close()
    path = Path(file.path) if Path(file.path).is_absolute() else tmp_path / file.path
    return path.read_bytes()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_texts_that_begin_like_a_formula_have_a_quote(
    tmp_path: Path, encoder: str, kind: pa.DataType
) -> None:
    """Each of the beginnings, wherever else the sign stands; NULL and empty texts stay."""
    values = [*DANGEROUS, None, *HARMLESS]
    table = pa.table({"v": pa.array(values, pa.string()).cast(kind), "n": list(range(len(values)))})
    text = written(tmp_path, table, encoder=encoder, null="NULL").decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    wanted = ["NULL" if value is None else expected(value) for value in values]
    assert [row[0] for row in rows] == wanted


@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_is_no_text_is_not_touched(tmp_path: Path, encoder: str) -> None:
    """Numbers keep their sign, also those carried as text, and so do dates before our era."""
    number = pa.field("number", pa.string(), metadata={"text_class": "number"})
    fields = [
        pa.field("i", pa.int64()),
        pa.field("d", pa.decimal128(5, 2)),
        pa.field("f", pa.float64()),
        number,
        pa.field("day", pa.date32()),
    ]
    columns = [
        pa.array([-1]), pa.array([Decimal("-1.50")], pa.decimal128(5, 2)), pa.array([-0.5]),
        pa.array(["-12345678901234567890"]), pa.array([date(2026, 1, 2)]),
    ]  # fmt: skip
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    text = written(tmp_path, table, encoder=encoder).decode()
    assert text.splitlines()[1] == "-1,-1.50,-0.5,-12345678901234567890,2026-01-02"


@pytest.mark.parametrize("value", ["=" + "x" * 100_000, "x=" * 50_000])
def test_large_texts_are_guarded_piece_by_piece(tmp_path: Path, value: str) -> None:
    """Only the beginning of a large value counts, and empty pieces before it do not."""
    schema = pa.schema([pa.field("v", pa.string()), pa.field("b", pa.binary())])

    row = pa.RecordBatch.from_arrays([pa.nulls(1, pa.string()), pa.array([b"="])], schema=schema)
    text = written(tmp_path, [LargeRow(row=row, values=((0, InPieces(value)),))], header=False)
    assert text.decode() == f"{expected(value)},\\x3d\n"


@given(st.lists(st.one_of(st.none(), st.text(alphabet="=+-@\t\r\n'\"a,＝−", max_size=4))))
def test_the_rule_holds_for_any_texts(values: list[str | None]) -> None:
    """Arrow's way of guarding does what the rule says, whatever stands in the column."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["v"])
    guarded = FormulaGuard(batch.schema).batch(batch)
    assert guarded.column(0).to_pylist() == list(map(expected, values))
