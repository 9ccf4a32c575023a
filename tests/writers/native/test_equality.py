"""The native encoder against the plain one, which defines the bytes: on random dialects and batches.

Where the plain encoder refuses, the native one must refuse with the same words.
"""

from random import Random

import hypothesis.strategies as st
import pyarrow as pa
import pytest
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
@given(st.data(), st.integers(1, 700), st.integers(1, 700), st.integers(0, 2**32))
def test_long_batches_in_chunks_of_different_sizes(data, first, second, seed):
    """Rows in the thousands, cut anywhere, are the records of the rows one after the other."""
    form = data.draw(formats())
    batches = data.draw(tables(form, most_columns=3))
    batch = max(batches, key=lambda each: each.num_rows)
    assume(batch.num_rows)
    random = Random(seed)
    try:
        whole = batch.take([random.randrange(batch.num_rows) for _ in range(1500)])
    except pa.ArrowNotImplementedError:
        assume(False)  # Arrow takes no rows of some types, such as views in dictionaries.
    cut = [whole.slice(0, first), whole.slice(first, second), whole.slice(first + second)]
    assert story("native", cut, form) == story("plain", cut, form)


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


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["int", "uint"])
def test_dictionaries_of_every_index_type(bits, sign):
    """Values are looked up through indices of any width, nulls in either place."""
    from writers.text.dialects import DIALECTS

    index = getattr(pa, f"{sign}{bits}")()
    texts = pa.array(["a", None, 'q"', "", "long enough to lie outside of a view"])
    indices = pa.array([4, None, 0, 2, 1, 3, 3], index)
    columns = [
        pa.DictionaryArray.from_arrays(indices, texts.cast(kind)).slice(1)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ]
    columns.append(pa.DictionaryArray.from_arrays(indices, pa.array([1, None, 3, -4, 5])).slice(1))
    batch = pa.RecordBatch.from_arrays(columns, ["a", "b", "c", "d"])
    for name in ("rfc4180", "tsv", "mysql"):
        form = DIALECTS[name]
        assert story("native", [batch], form) == story("plain", [batch], form)
