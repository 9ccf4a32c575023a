"""Text encoders: the native one where it can be used, and the plain one, which has the same bytes.

Nothing is imported or loaded before it is asked for.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from writers.built_library import advice
from writers.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

    from writers.files.sink import Sink
    from writers.model import EncoderChoice, TextFormat
    from writers.native.encoder import NativeEncoder
    from writers.text.delimited import PlainEncoder


def open_encoder(
    schema: pa.Schema, format: TextFormat, choice: EncoderChoice = "auto"
) -> PlainEncoder | NativeEncoder:
    """Return an encoder for the batches of one work unit.

    Args:
        schema: Of every batch.
        format: The dialect.
        choice: auto is the native encoder where it can be used, else the plain one.

    Raises:
        FormatError: The format is impossible for the schema, or the native encoder was asked for
            and cannot be used.
    """
    check_choice(choice)
    if choice != "plain" and why_not_native() is None:
        from writers.native.encoder import NativeEncoder

        return NativeEncoder(schema, format)
    from writers.text.delimited import PlainEncoder

    return PlainEncoder(schema, format)


def check_choice(choice: EncoderChoice) -> None:
    """Make sure that the encoder that was asked for by name can be used.

    Raises:
        FormatError: It is the native one, which cannot.
    """
    if choice != "native" or (reason := why_not_native()) is None:
        return
    raise FormatError(
        f"the native text encoder cannot be used: {reason}.", f"{advice()}, or use --encoder plain."
    )


def encode_into(
    sink: Sink, encoder: PlainEncoder | NativeEncoder, batch: pa.RecordBatch
) -> tuple[int, float]:
    """Encode a batch behind what a sink was given before.

    Returns:
        Bytes of the records, and the wall seconds spent encoding: not those spent waiting for room.

    Raises:
        ValueNotRepresentable: A value cannot be written without a change. Rows before it may have
            been taken by the sink.
        WriteError: The destination failed.
    """
    from writers.text.delimited import PlainEncoder

    started = perf_counter()
    if isinstance(encoder, PlainEncoder):
        text = encoder.encode(batch)
        seconds = perf_counter() - started
        sink.write(text)
        return len(text), seconds
    size, seconds = 0, 0.0
    with encoder.rows(batch) as rows:
        seconds += perf_counter() - started
        while not rows.done:
            room = sink.room()
            started = perf_counter()
            count = rows.fill(room)
            records = None if count else rows.next_records()
            seconds += perf_counter() - started
            if records is None:
                sink.advance(count)
            else:
                sink.write(records)
            size += count if records is None else len(records)
    return size, seconds


def why_not_native() -> str | None:
    """Return why the native encoder cannot be used, None if it can; the library is loaded."""
    from writers.native.library import why_not

    return why_not()
