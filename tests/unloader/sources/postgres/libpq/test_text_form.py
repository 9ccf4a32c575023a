"""Rows of COPY's text form natively turned into CSV: as the plain twin does, and as the server."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unloader.errors import SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.sources.postgres.errors import Malformed
from unloader.sources.postgres.libpq import connection as copying
from unloader.sources.postgres.libpq.connection import c_dialect
from unloader.sources.postgres.session import Session
from unloader.sources.postgres.statement import CopyDialect, TextForm

MARKS = ",;|\t'\"\\~bnNx0. "
NULLS = ("", r"\N", "NULL", "x", r"\.", "''", "-", "a,b")
DIALECTS = [
    CopyDialect(delimiter=delimiter, quote=quote, null=null)
    for delimiter in MARKS
    for quote in MARKS
    for null in NULLS
    if delimiter != quote and not {delimiter, quote} & set(null)
]

_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_VALUE = re.compile(rb"(?:[^\t\\\r\n]|\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{1,2}|[^\r\n]))*")
_ESCAPED = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)

forced = st.lists(st.booleans(), min_size=1, max_size=6).map(tuple)


@st.composite
def forms(draw: st.DrawFn) -> TextForm:
    """Return any dialect with any columns in quotes."""
    dialect = draw(st.sampled_from(DIALECTS))
    marks = dialect.delimiter.encode(), dialect.quote.encode()
    return TextForm(
        delimiter=marks[0], quote=marks[1], null=dialect.null.encode(), forced=draw(forced)
    )


PIECES = (rb"\N", rb"\.", rb"\\", rb"\t", rb"\n", rb"\x4", rb"\x4a9", rb"\7", rb"\1012", rb"\8")
PLAIN = [bytes((byte,)) for byte in range(1, 128) if byte not in b"\n\r\\\t"]
values = st.lists(
    st.one_of(
        st.sampled_from(PIECES + tuple(mark.encode() for mark in MARKS if mark not in "\t\\")),
        st.sampled_from(PLAIN),
        st.sampled_from((b"", b"NULL", "é𝄞".encode(), b"x" * 15, b"y" * 63, b"z" * 300)),
    ),
    max_size=12,
).map(b"".join)
torn = st.lists(
    st.sampled_from((*PIECES, b"\\", b"\t", b"\n", b"\r", b"", b"ab", b'"', b",", b"\\\t", b"\0")),
    max_size=20,
).map(b"".join)


def csv_row(form: TextForm, row: bytes) -> bytes:
    """Return a row as CSV.

    Raises:
        Malformed: The text is not a row with these columns in the text form.
    """
    found, at = [], 0
    while True:
        value = _VALUE.match(row, at)
        assert value is not None  # It may be empty.
        found.append(value[0])
        at = value.end() + 1
        if row[at - 1 : at] != b"\t":
            break
    if row[at - 1 :] != b"\n" or len(found) != len(form.forced):
        raise Malformed(f"a row of {len(form.forced)} columns")
    values = zip(found, form.forced, strict=True)
    return form.delimiter.join(_csv_value(form, *each) for each in values) + b"\n"


def _csv_value(form: TextForm, text: bytes, is_quoted: bool) -> bytes:
    if text == rb"\N":
        return form.null
    value = _ESCAPED.sub(_unescaped, text)
    is_alone = len(form.forced) == 1 and value == rb"\."
    is_read_otherwise = value == form.null or is_alone
    marks = (form.delimiter, form.quote, b"\r", b"\n")
    if is_quoted or is_read_otherwise or any(mark in value for mark in marks):
        return form.quote + value.replace(form.quote, 2 * form.quote) + form.quote
    return value


def _unescaped(escape: re.Match[bytes]) -> bytes:
    text = escape[1]
    if text.isdigit() and text[:1] < b"8":
        return bytes((int(text, 8) & 0xFF,))
    if len(text) > 1:
        return bytes((int(text[1:], 16),))
    return _LETTERS.get(text, text)


def native_row(form: TextForm, row: bytes) -> bytes | None:
    library = copying.native()
    assert library is not None
    # The most bytes of a row: quotes doubled, and quotes and NULLs of all columns.
    room = len(row) + row.count(form.quote) + (len(form.null) + 2) * len(form.forced) + 2 + 64
    out = ctypes.create_string_buffer(room)
    size = library.unloader_copy_convert(ctypes.byref(c_dialect(form)), row, len(row), out, room)
    return out.raw[:size] if size >= 0 else None


def plain_row(form: TextForm, row: bytes) -> bytes | None:
    try:
        return csv_row(form, row)
    except Malformed:
        return None


@given(form=forms(), data=st.data())
def test_a_row_becomes_what_the_twin_makes_of_it(form: TextForm, data: st.DataObject) -> None:
    """In any dialect, for any values."""
    columns = len(form.forced)
    row = b"\t".join(data.draw(st.lists(values, min_size=columns, max_size=columns))) + b"\n"
    expected = csv_row(form, row)
    assert native_row(form, row) == expected


@given(form=forms(), text=torn)
def test_what_is_no_such_row_is_refused(form: TextForm, text: bytes) -> None:
    """Escapes interrupted, ends of lines within a row, and other numbers of columns."""
    for row in (text, text + b"\n"):
        assert native_row(form, row) == plain_row(form, row)


@pytest.fixture(scope="module")
def session(postgres: Any) -> Iterator[Session]:
    """An open session."""
    with closing(Session(SourceSpec(kind="postgresql", location=postgres.url))) as opened:
        yield opened


def both(session: Session, sql: str, dialect: CopyDialect, names: str, size: int) -> list[bytes]:
    """Return a query's text as the server writes it, and out of the text form."""
    ways: tuple[tuple[str, ...], ...] = ((), tuple(names))
    texts = []
    for columns in ways:
        chunks = [bytes(chunk) for (chunk,) in session.copied(sql, dialect, size, columns)]
        assert all(chunk.endswith(b"\n") for chunk in chunks)
        assert all(len(chunk) < size for chunk in chunks if chunk.count(b"\n") > 1) or size < 10_000
        texts.append(b"".join(chunks))
    return texts


HOSTILE = r"""
SELECT repeat(v, n) AS a, g AS b, CASE WHEN g % 3 > 0 THEN v END AS c FROM (
  SELECT chr(g) AS v, g FROM generate_series(1, 127) g
  UNION ALL SELECT v, row_number() OVER () FROM unnest(ARRAY['', NULL, '\N', '\.', 'NULL', '\\',
    '\x41', '\101', '\', 'a\', E'\\\n', E'\r\n', '"', '""', E'a"b,c\'d|e\tf', repeat('x', 63) || E'\t',
    'é𝄞', '{"k": "v\n"}', '{1,NULL,"a b"}', '\xdeadbeef', '''', E'\t\t', 'x', '-', 'a,b']) v
) t, unnest(ARRAY[1, 2, 30]) n
"""


def test_every_dialect_is_the_servers(session: Session) -> None:
    """The same bytes by both forms for all byte values and all that reads as something else."""
    for dialect in DIALECTS[::7]:
        for force in (False, True, ("b", "c")):
            changed = CopyDialect(
                delimiter=dialect.delimiter,
                quote=dialect.quote,
                null=dialect.null,
                force_quote=force,
            )
            csv, text = both(session, HOSTILE, changed, "abc", 1 << 20)
            assert text == csv, changed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 3000), max_size=40), size=st.integers(1, 20_000))
def test_buffers_of_any_size_are_the_same(session: Session, lengths: list[int], size: int) -> None:
    """Rows about as long as a buffer, of plain text and of quotes and escapes."""
    numbers = f"unnest('{{{','.join(map(str, lengths))}}}'::int[]) AS n"
    sql = rf"SELECT repeat('x', n) AS a, n AS b, repeat(E'\\\n\"', n % 50) AS c FROM {numbers}"
    csv, text = both(session, sql, CopyDialect(), "abc", size)
    assert text == csv


@pytest.mark.parametrize("is_built", [True, False])
def test_the_text_form_is_asked_for_where_it_can_be_turned(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_built: bool
) -> None:
    """Not where the native code is missing; the bytes are the same."""
    if not is_built:
        monkeypatch.setenv(copying.OVERRIDE, "")
    copying.native.cache_clear()
    sql = r"SELECT '\' AS a, current_query() AS b, NULL AS c, '' AS d"
    try:
        ((chunk,),) = session.copied(sql, CopyDialect(), 1000, tuple("abcd"))
    finally:
        copying.native.cache_clear()
    statement = bytes(chunk).removeprefix(b'\\,"').removesuffix(b'",,""\n')
    asked = b"(FORMAT text)" if is_built else b"(FORMAT csv, "
    assert statement.startswith(b"COPY (SELECT ")
    assert asked in statement


@pytest.mark.parametrize("names", ["a", "abc"])
def test_a_row_of_other_columns_ends_the_copy(postgres: Any, names: str) -> None:
    """The error names the row; another attempt would not help."""
    with closing(Session(SourceSpec(kind="postgresql", location=postgres.url))) as opened:
        pieces = opened.copied("SELECT 1 AS a, 2 AS b", CopyDialect(), 1000, tuple(names))
        said = f"COPY sent text that is not of its text form with {len(names)} columns, in row 1"
        with pytest.raises(SourceError, match=said) as raised:
            list(pieces)
        assert not isinstance(raised.value, TransientSourceError)
        assert not opened.alive
