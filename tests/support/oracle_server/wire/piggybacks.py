"""Calls that come before another one in the same request and have no reply of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from oracle_server.wire.calls import LOB_OPERATION, Head, read_lob_operation
from oracle_server.wire.reader import Reader

CLOSE_CURSORS = 105
CANCEL_CURSORS = 120
END_TO_END = 135
SCHEMA = 152
KEY_VALUES = 154
SESSION_STATE = 176
PIPELINE_BEGIN = 199
ALTER_SESSION = 204


@dataclass(slots=True, kw_only=True)
class Piggybacks:
    """What the piggybacks of one request ask for."""

    cursors: list[int] = field(default_factory=list)
    """To be closed."""
    attributes: dict[str, str] = field(default_factory=dict)
    """By the name of the field of SessionState."""
    schema: str = ""
    locators: list[bytes] = field(default_factory=list)
    """Operands of LOB operations: locators to free, one after the other."""
    begins_pipeline: bool = False

    def read(self, reader: Reader, field_version: int) -> None:
        """Read one piggyback, its type byte already read.

        Raises:
            NotImplementedError: A function that is not known here; nothing after it can be read.
        """
        function = Head.read(reader, field_version).function
        read = _READERS.get(function)
        if read is None:
            raise NotImplementedError(f"piggyback {function}")
        read(self, reader)


def _close_cursors(found: Piggybacks, reader: Reader) -> None:
    reader.skip("b")
    found.cursors += [reader.ub() for _ in range(reader.ub())]


def _cancel_cursors(found: Piggybacks, reader: Reader) -> None:
    """Read over cursors that will not be fetched from any more, but may be executed again."""
    reader.skip("b")
    for _ in range(reader.ub()):
        reader.ub()


def _end_to_end(found: Piggybacks, reader: Reader) -> None:
    reader.skip("bbu")
    lengths = {}
    for name in ("client_identifier", "module", "action"):
        lengths[name] = _length(reader)
    reader.skip("bubu")
    lengths["client_info"] = _length(reader)
    reader.skip("bubu")
    lengths["database_operation"] = _length(reader)
    for name, length in lengths.items():
        if length is not None:
            found.attributes[name] = reader.text(length)


def _length(reader: Reader) -> int | None:
    """Return the length of an attribute that is changed, else None."""
    is_set, length = reader.u8(), reader.ub()
    return length if is_set else None


def _schema(found: Piggybacks, reader: Reader) -> None:
    reader.skip("b")
    found.schema = (reader.dalc() or b"").decode()


def _key_values(found: Piggybacks, reader: Reader) -> None:
    reader.skip("b")
    length = reader.ub()
    reader.skip("b")
    count = reader.ub()
    reader.skip("ub")
    reader.text(length)
    reader.pairs(count)


def _session_state(found: Piggybacks, reader: Reader) -> None:
    reader.skip("u")


def _begin_pipeline(found: Piggybacks, reader: Reader) -> None:
    reader.skip("ubb")
    found.begins_pipeline = True


def _alter_session(found: Piggybacks, reader: Reader) -> None:
    reader.skip("ub")
    reader.pairs(reader.ub())


def _free_locators(found: Piggybacks, reader: Reader) -> None:
    found.locators.append(read_lob_operation(reader).locator)


_READERS: dict[int, Callable[[Piggybacks, Reader], None]] = {
    LOB_OPERATION: _free_locators,
    CLOSE_CURSORS: _close_cursors,
    CANCEL_CURSORS: _cancel_cursors,
    END_TO_END: _end_to_end,
    SCHEMA: _schema,
    KEY_VALUES: _key_values,
    SESSION_STATE: _session_state,
    PIPELINE_BEGIN: _begin_pipeline,
    ALTER_SESSION: _alter_session,
}
