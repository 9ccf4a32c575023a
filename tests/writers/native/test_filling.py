"""Buffers of any size, filled one after the other, hold the bytes of the whole batch."""

import hypothesis.strategies as st
from amounts import tries
from encoders.random_batches import tables
from encoders.random_formats import formats
from encoders.text_encoders import encoder
from hypothesis import assume, given

from writers.errors import FormatError, ValueNotRepresentable

GUARD = bytes([0xA5]) * 64


def filled(made, batch, sizes):
    """The records of a batch, put into buffers of these sizes by turns."""
    parts, turn = [], 0
    with made.rows(batch) as rows:
        while not rows.done:
            size = sizes[turn % len(sizes)]
            turn += 1
            memory = bytearray(size) + GUARD
            with memoryview(memory) as whole, whole[:size] as room:
                count = rows.fill(room)
            assert 0 <= count <= size
            assert memory[size:] == GUARD, "bytes behind the buffer were written"
            parts.append(bytes(memory[:count]))
            if not count and not rows.done:
                assert rows.needed > size, "nothing was written into enough room"
                parts.append(bytes(rows.next_records()))
    return b"".join(parts)


def outcome(act):
    try:
        return act()
    except ValueNotRepresentable as error:
        return str(error)


@tries(100)
@given(st.data(), st.lists(st.integers(1, 40) | st.integers(1, 5000), min_size=1, max_size=4))
def test_any_buffers_give_the_same_bytes(data, sizes):
    """From one byte to more than all records: same bytes, or same error, as from a whole batch."""
    form = data.draw(formats())
    batches = data.draw(tables(form))
    try:
        native, plain = (encoder(name, batches[0].schema, form) for name in ("native", "plain"))
    except FormatError:
        assume(False)
    for batch in batches:
        expected = outcome(lambda batch=batch: bytes(plain.encode(batch)))
        assert outcome(lambda batch=batch: filled(native, batch, sizes)) == expected
        if isinstance(expected, str):
            return
        assert native.rows_encoded == plain.rows_encoded


def test_a_batch_may_be_left_before_its_end():
    """What is not taken of a batch is forgotten, and the memory of it is given back."""
    import pyarrow as pa

    from writers.text.dialects import DIALECTS

    batch = pa.record_batch([pa.array(["text"] * 1000)], ["c"])
    made = encoder("native", batch.schema, DIALECTS["rfc4180"])
    before = pa.total_allocated_bytes()
    for _ in range(50):
        with made.rows(batch.slice(1)) as rows:
            assert rows.fill(memoryview(bytearray(200)))
    assert pa.total_allocated_bytes() == before
