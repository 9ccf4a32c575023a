"""The native encoder against the plain one, which defines the bytes: on random dialects and batches.

Where the plain encoder refuses, the native one must refuse with the same words.
"""

import hypothesis.strategies as st
import pyarrow as pa
from amounts import tries
from encoders.random_batches import tables
from encoders.random_formats import formats
from encoders.text_encoders import encoder
from hypothesis import assume, given

from writers.errors import FormatError, ValueNotRepresentable
from writers.large_rows import LargeRow
from writers.testing import PiecedText


def outcome(act):
    """What an act gives: bytes, or the error with all its words."""
    try:
        return bytes(act())
    except (FormatError, ValueNotRepresentable) as error:
        return type(error).__name__, str(error)


def story(name, batches, form):
    """Everything an encoder does with batches, up to its first error."""
    try:
        made = encoder(name, batches[0].schema, form)
    except FormatError as error:
        return [str(error)]
    told = [outcome(made.preamble), outcome(made.header)]
    for batch in batches:
        told.append(outcome(lambda batch=batch: made.encode(batch)))
        if isinstance(told[-1], tuple):
            return told
    return [*told, made.rows_encoded]


@tries(200)
@given(st.data())
def test_random_tables_give_the_same_bytes_or_the_same_error(data):
    """Any dialect, any types, any layout: same preamble, header, records, errors and row count."""
    form = data.draw(formats())
    batches = data.draw(tables(form))
    assert story("native", batches, form) == story("plain", batches, form)


@tries(60)
@given(st.data())
def test_every_slice_is_its_own_rows(data):
    """Each offset and length of a batch gives the records of exactly these rows."""
    form = data.draw(formats())
    [batch, *_] = data.draw(tables(form, most_columns=3))
    try:
        plain, native = (encoder(name, batch.schema, form) for name in ("plain", "native"))
        pieces = [bytes(plain.encode(batch.slice(row, 1))) for row in range(batch.num_rows)]
    except (FormatError, ValueNotRepresentable):
        assume(False)
    for start in range(batch.num_rows + 1):
        for rows in range(batch.num_rows - start + 1):
            expected = b"".join(pieces[start : start + rows])
            assert bytes(native.encode(batch.slice(start, rows))) == expected


@tries(40)
@given(st.data())
def test_large_rows_between_batches(data):
    """A row with a value in pieces gives what the plain encoder gives, and is counted."""
    form = data.draw(formats())
    value = data.draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
    batch = pa.record_batch([pa.array([None], pa.string()), pa.array([1])], ["a", "b"])
    large = LargeRow(row=batch, values=((0, PiecedText(text=value)),))
    found = []
    for name in ("plain", "native"):
        try:
            made = encoder(name, batch.schema, form)
            parts = [
                outcome(lambda made=made: made.encode(batch)),
                outcome(lambda made=made: b"".join(made.encode_large(large))),
                outcome(lambda made=made: made.encode(batch)),
            ]
            found.append((parts, made.rows_encoded))
        except FormatError as error:
            found.append(str(error))
    assert found[0] == found[1]
