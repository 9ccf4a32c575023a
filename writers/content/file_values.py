"""The values of a written text column: what its fields are, and which cannot be told any more.

A dialect may show less than there was: a mask without the fraction, a substitute for a character.
Such a column is named and left out, never compared with something else.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from writers.arrow_compute import pc
from writers.content.forms import Form, Kind, form_of
from writers.model import TextFormat
from writers.schema import text_class
from writers.text.formulas import is_guarded

if TYPE_CHECKING:
    import pyarrow as pa

_MASK = re.compile(r'(YYYY|MM|DD|HH24|MI|SS)|FF([1-9])|"([^"]*)"|([-/.,;: ])', re.IGNORECASE)
_LENGTHS = {"YYYY": 4, "MM": 2, "DD": 2, "HH24": 2, "MI": 2, "SS": 2}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_WORDS = {"true/false": "true", "t/f": "t", "1/0": "1"}
_PREFIXES = {"prefixed-hex": 2, "hex": 0}

Slices = dict[str, tuple[int, int]]
"""Where each element of a mask stands in a text that follows it: first character, and behind."""


def why_not(field: pa.Field, format: TextFormat) -> str:
    """Return why the values of a column cannot be told from its text; empty if they can."""
    from pyarrow import types

    if format.fixed:
        return "padding of fixed width hides blanks and NULLs"
    textual = not (_is_moment(field.type) or _is_number(field.type) or types.is_boolean(field.type))
    if format.substitute is not None and textual:
        return "--substitute may have replaced characters"
    if format.guard_formulas and is_guarded(field):
        return "--guard-formulas may have put a quote before the value"
    if text_class(field) == "timestamp" and format.moves_to_utc:
        return "the dialect writes timestamps with a time zone in UTC, without their offset"
    mask = _mask_of(field, format)
    if mask is not None and _slices(field, mask, format) is None:
        return f"the format {mask} does not show all of a value"
    return ""


def values_of(texts: pa.Array, field: pa.Field, format: TextFormat) -> tuple[pa.Array, Form]:
    """Return the fields of a column, null for NULL, as an array with a form.

    Args:
        texts: Strings.
        field: What was written.
        format: How.

    Raises:
        ValueError: A text is none of the type's.
    """
    from pyarrow import types

    kind = field.type
    number = _is_number(kind) or text_class(field) == "number"
    if number and format.decimal_separator != ".":
        texts = pc.replace_substring(texts, format.decimal_separator, ".")
    if types.is_floating(kind):
        array = pc.cast(texts, kind)
        return array, _form(array)
    if number:
        return texts, _form(texts, "number")
    if types.is_boolean(kind):
        array = _booleans(texts, format)
        return array, _form(array)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _bytes(texts, format)
    mask = _mask_of(field, format)
    if mask is not None:
        texts = _rearranged(texts, field, mask, format)
    elif types.is_timestamp(kind) and kind.tz is not None and format.moves_to_utc:
        # An infinity has no offset.
        texts = pc.replace_substring_regex(texts, r"^(\d.*?)( BC)?$", r"\1+00:00\2")
    return texts, _form(texts)


def _form(array: pa.Array, text_class: str = "") -> Form:
    form = form_of(array.type, text_class=text_class)
    assert form is not None
    return form


def _is_moment(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind))


def _is_number(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind))


def _booleans(texts: pa.Array, format: TextFormat) -> pa.Array:
    yes, no = format.boolean.split("/")
    known = pc.or_(pc.equal(texts, yes), pc.equal(texts, no))
    if not pc.all(pc.fill_null(known, True)).as_py():
        raise ValueError(f"a truth value is neither {yes} nor {no}")
    return pc.equal(texts, yes)


def _bytes(texts: pa.Array, format: TextFormat) -> tuple[pa.Array, Form]:
    if format.binary == "base64":
        import pyarrow as pa

        found = [None if each is None else base64.b64decode(each) for each in texts.to_pylist()]
        array = pa.array(found, pa.large_binary())
        return array, _form(array)
    form = _form(texts)
    return texts, Form(kind=Kind.HEX_TEXT, width=form.width, digits=_PREFIXES[format.binary])


def _mask_of(field: pa.Field, format: TextFormat) -> str | None:
    from pyarrow import types

    if text_class(field) == "timestamp":
        return format.timestamp_tz_format or format.timestamp_format
    if types.is_date(field.type):
        return format.date_format
    if not types.is_timestamp(field.type):
        return None
    if text_class(field) == "date" and format.date_format is not None:
        return format.date_format
    return format.timestamp_format if field.type.tz is None else format.timestamp_tz_format


def _slices(field: pa.Field, mask: str, format: TextFormat) -> Slices | None:
    """Return where a mask's elements stand, None if it does not show all of a value once."""
    from pyarrow import types

    found: Slices = {}
    at = end = 0
    for match in _MASK.finditer(mask):
        name = (match[1] or "").upper() or ("FF" if match[2] else "")
        length = _LENGTHS.get(name) or int(match[2] or 0) or len(match[3] or match[4] or "")
        if match.start() != end or name in found:
            return None
        end, start, at = match.end(), at, at + length
        if name:
            found[name] = (start, at)
    needed = {"YYYY", "MM", "DD"}
    if types.is_timestamp(field.type):
        if field.type.tz is not None:
            return None
        needed |= {"HH24", "MI", "SS"}
        first, last = found.get("FF", (0, 0))
        # Where fractions are kept, none was cut: the writer refuses what the mask leaves out.
        if format.fractions == "mask" and last - first < _DIGITS[field.type.unit]:
            return None
    elif text_class(field) == "timestamp":
        return None
    return found if end == len(mask) and needed <= found.keys() else None


def _rearranged(texts: pa.Array, field: pa.Field, mask: str, format: TextFormat) -> pa.Array:
    """Return ISO 8601 for texts that follow a mask."""
    import pyarrow as pa
    from pyarrow import types

    slices = _slices(field, mask, format)
    assert slices is not None, "asked before"

    def part(name: str) -> Any:
        return pc.utf8_slice_codeunits(texts, *slices[name])

    def joined(mark: str, *parts: Any) -> Any:
        return pc.binary_join_element_wise(*parts, pa.scalar(mark, texts.type))

    date = joined("-", part("YYYY"), part("MM"), part("DD"))
    if types.is_date(field.type):
        return date
    moment = joined(" ", date, joined(":", part("HH24"), part("MI"), part("SS")))
    if "FF" not in slices:
        return moment
    return pc.ascii_rtrim(pc.ascii_rtrim(joined(".", moment, part("FF")), "0"), ".")
