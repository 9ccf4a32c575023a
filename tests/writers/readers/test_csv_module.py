"""Python's csv module reads what the encoders wrote.

It claims the values of every dialect that encloses with one character. It cannot tell NULL from a
text, which other readers do here, so NULL is compared as the text it is written as.
"""

import csv
import io

import pytest
from encoders.hostile_texts import hostile_batch, hostile_texts, rows_of
from msgspec.structs import replace

from writers.model import TextFormat
from writers.text.dialects import DIALECTS

FORMS = {
    **{name: DIALECTS[name] for name in ("rfc4180", "excel", "postgres", "mysql")},
    "strings": TextFormat(enclose="strings", delimiter=";", enclosure="'"),
    "all": TextFormat(enclose="all", delimiter="\t", null="-", trailing_delimiter=True),
    "backslashes": TextFormat(enclose="all", escape="backslash", delimiter="|"),
    "utf-16": TextFormat(encoding="utf-16", eol="\r\n"),
    "gb18030": TextFormat(encoding="gb18030", delimiter="，"),
}


def read(data, form):
    backslash = form.escape == "backslash"
    text = io.StringIO(data.decode(form.encoding), newline="")
    limit = csv.field_size_limit(1 << 30)
    try:
        return list(
            csv.reader(
                text,
                delimiter=form.delimiter,
                quotechar=form.enclosure,
                doublequote=not backslash,
                escapechar="\\" if backslash else None,
                strict=True,
            )
        )
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_value_comes_back(name, write):
    """Each hostile text is read back exactly, wherever it stands in the record."""
    form = FORMS[name]
    batch = hostile_batch(hostile_texts(form), nulls=form.escape != "backslash")
    found = read(write(batch, form), form)
    expected = [[form.null if v is None else v for v in row] for row in rows_of(batch)]
    if form.trailing_delimiter:
        found = [row[:-1] if row[-1] == "" else row for row in found]
    if form.header:
        expected.insert(0, batch.schema.names)
    assert found == expected


def test_typed_values_come_back(typed, write):
    """Numbers, times and bytes are read as the texts that ISO 8601 and SQL have for them."""
    batch, texts = typed
    form = replace(DIALECTS["rfc4180"], null="(null)")
    expected = [["(null)" if v is None else v for v in row] for row in texts]
    assert read(write(batch, form), form) == [batch.schema.names, *expected]
