"""pandas reads what the encoders wrote.

It claims the values of every dialect that encloses with one character. It compares NULL texts
without a look at enclosures, so NULL is told apart only by a text that no value has.
"""

import io
from dataclasses import replace

import pandas as pd
import pytest
from encoders.hostile_texts import hostile_batch, hostile_texts, rows_of

from writers.model import TextFormat
from writers.text.dialects import DIALECTS

FORMS = {
    **{name: DIALECTS[name] for name in ("rfc4180", "excel", "postgres", "mysql")},
    "strings": TextFormat(enclose="strings", delimiter=";", enclosure="'"),
    "utf-16": TextFormat(encoding="utf-16"),
}


def read(data, form, **options):
    backslash = form.escape == "backslash"
    frame = pd.read_csv(
        io.BytesIO(data),
        dtype=str,
        keep_default_na=False,
        sep=form.delimiter,
        quotechar=form.enclosure,
        doublequote=not backslash,
        escapechar="\\" if backslash else None,
        encoding=form.encoding,
        header=0 if form.header else None,
        **options,
    )
    return [
        tuple(None if v is pd.NA or v != v else v for v in row) for row in frame.values.tolist()
    ]


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_value_comes_back(name, write):
    """Each hostile text is read back exactly."""
    form = FORMS[name]
    batch = hostile_batch(hostile_texts(form), nulls=False)
    assert read(write(batch, form), form, na_filter=False) == rows_of(batch)


@pytest.mark.parametrize("name", ["rfc4180", "excel", "postgres"])
def test_null_is_told_from_every_value(name, write):
    """With a NULL text that no value has, NULL is missing and the empty text is not."""
    form = replace(DIALECTS[name], null="<null>")
    texts = [text for text in hostile_texts(form) if text != form.null]
    batch = hostile_batch(texts)
    assert read(write(batch, form), form, na_values=["<null>"]) == rows_of(batch)
