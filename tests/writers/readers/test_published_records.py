"""The three published records of an unloader's output, from their values, by each encoder."""

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
from encoders.sqlldr_rules import Field, FieldList, var_records

from writers.text.dialects import dialect

RECORDS = (
    b"0000000148~~Foqvre~~,~~21530424004401~~,280731594835,~~dlG9HSUf~~,748766.98,"
    b"~~23240607215642~~,~~k7037   ~~,~~FFw5hZ12W~~,768478998939019,~~9LRhSbMaR9fBv~~,\r\n"
    b"0000000159~~1cCQM39g~~,~~38441127025731~~,2379760955898,~~EMLo6HgNWq~~,996422.43,"
    b"~~28320220041621~~,~~ikKDhPZ ~~,~~hDWNzNWpV~~,793767313694761,~~HR3Z3krExrMuKMu7Od2~~,\r\n"
    b"0000000160~~sQ5QpcWkOu~~,~~35821117194854~~,3681160762725,~~rfBYL7IYdN5go~~,622915.16,"
    b"~~19750226100019~~,~~oM4LJJ  ~~,~~MKExk1~~,629023003075868,~~2VXfksb1aVlUcoBfad~~,\r\n"
)
ROWS = (
    ("Foqvre", datetime(2153, 4, 24, 0, 44, 1), 280731594835, "dlG9HSUf", Decimal("748766.98"),
     datetime(2324, 6, 7, 21, 56, 42), "k7037   ", "FFw5hZ12W", 768478998939019, "9LRhSbMaR9fBv"),
    ("1cCQM39g", datetime(3844, 11, 27, 2, 57, 31), 2379760955898, "EMLo6HgNWq", Decimal("996422.43"),
     datetime(2832, 2, 20, 4, 16, 21), "ikKDhPZ ", "hDWNzNWpV", 793767313694761, "HR3Z3krExrMuKMu7Od2"),
    ("sQ5QpcWkOu", datetime(3582, 11, 17, 19, 48, 54), 3681160762725, "rfBYL7IYdN5go", Decimal("622915.16"),
     datetime(1975, 2, 26, 10, 0, 19), "oM4LJJ  ", "MKExk1", 629023003075868, "2VXfksb1aVlUcoBfad"),
)  # fmt: skip
TEXT, SECOND = pa.string(), pa.timestamp("s")
KINDS = (TEXT, SECOND, pa.int64(), TEXT, pa.decimal128(12, 2), SECOND, TEXT, TEXT)
KINDS += (pa.decimal128(38, 0), TEXT)


def test_the_published_records_come_byte_for_byte(write):
    """A table of the published shape gives the published bytes."""
    columns = list(zip(*ROWS, strict=True))
    columns[8] = [Decimal(number) for number in columns[8]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, KINDS, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, [f"c{number}" for number in range(10)])
    assert write(batch, dialect("sqlldr-var")) == RECORDS


def test_the_published_records_read_as_sql_loader_reads_them():
    """The reader by SQL*Loader's rules gets the published values from the published bytes."""
    rules = FieldList(
        fields=(Field(),) * 10,
        terminated_by=",",
        optionally_enclosed_by="~~",
        trailing_nullcols=True,
    )
    found = [rules.values(record) for record in var_records(RECORDS, 10)]
    assert found == [
        tuple(v.strftime("%Y%m%d%H%M%S") if isinstance(v, datetime) else str(v) for v in row)
        for row in ROWS
    ]
