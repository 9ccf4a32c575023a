"""Named dialects, contradictions between options, and the choice of an encoder."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from encoders import random_batches as text_encoders
from msgspec.structs import replace

from writers.errors import FormatError, ValueNotRepresentable
from writers.held_values import held_row
from writers.model import TextFormat
from writers.text.dialects import DIALECTS, check, dialect


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_dialects_are_free_of_contradictions(name):
    """Every named dialect passes its own check, in other encodings too."""
    check(dialect(name))
    for encoding in (
        "utf8",
        "latin-1",
        "cp932",
        "cp500",
        "utf-16-le",
        "UTF-16",
        "utf-8-sig",
        "gb18030",
    ):
        check(replace(dialect(name), encoding=encoding))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delimiter": ""}, "delimiter is empty"),
        ({"eol": ""}, "end of line is empty"),
        ({"enclosure": ""}, "empty enclosure"),
        ({"delimiter": '"'}, "--delimiter '\"' and --enclosure '\"' share"),
        ({"delimiter": "~|", "enclosure": "~~"}, "share '~'"),
        ({"delimiter": "\n"}, "--delimiter '\\n' and --eol '\\n' share"),
        ({"eol": ",\n"}, "share ','"),
        ({"enclosure": "\r", "eol": "\r\n"}, "share '\\r'"),
        ({"escape": "backslash", "delimiter": "\\"}, "escape character itself"),
        ({"escape": "backslash", "enclosure": "q"}, "begins with a letter or digit"),
        ({"null": "a,b"}, "runs into the delimiter"),
        ({"delimiter": "||", "null": "|"}, "runs into the delimiter"),
        ({"null": "\r"}, "end of line"),
        ({"null": '""'}, "holds the enclosure"),
        ({"record_length_digits": -1}, "record length of -1"),
        ({"record_length_digits": 21}, "record length of 21"),
        ({"decimal_separator": ""}, "cannot separate decimals"),
        ({"decimal_separator": "5"}, "cannot separate decimals"),
        ({"decimal_separator": ",", "enclose": "none"}, "would hold the delimiter"),
        ({"encoding": "latin-99"}, "unknown encoding 'latin-99'"),
        ({"encoding": "base64"}, "unknown encoding 'base64'"),
        ({"encoding": "utf-7"}, "not a character set"),
        ({"encoding": "punycode"}, "not a character set"),
        ({"encoding": "unicode_escape"}, "not a character set"),
        ({"encoding": "raw_unicode_escape"}, "not a character set"),
        ({"encoding": "latin-1", "delimiter": "日"}, "--delimiter '日' holds U\\+65E5"),
        ({"date_format": "YYYY-QQQQ-ZZ"}, "unknown element 'ZZ' at position 11"),
        ({"timestamp_format": ""}, "empty"),
        ({"timestamp_tz_format": "TZD"}, "unknown element"),
    ],
)
def test_contradictions_are_refused_with_a_way_out(options, words):
    """What makes output ambiguous is refused before any row, naming what to change."""
    with pytest.raises(FormatError, match=words.replace("'\\", "'\\\\")) as caught:
        check(TextFormat(**options))
    assert "Next: " in str(caught.value)


def test_null_may_not_end_in_the_escape_character():
    """A NULL of one backslash would escape the delimiter after it; two are their own text."""
    with pytest.raises(FormatError, match=r"--null .* ends with the escape character"):
        check(TextFormat(escape="backslash", null="\\"))
    check(TextFormat(escape="backslash", null="\\\\"))
    check(TextFormat(null="\\"))


@pytest.mark.parametrize("name", text_encoders.NAMES)
@pytest.mark.parametrize("enclose", ["minimal", "strings", "all"])
def test_a_dialect_refuses_what_its_program_cannot_read(name, enclose):
    """U+0000 in text for PostgreSQL, and the end of record where SQL*Loader cuts at it."""
    postgres = replace(DIALECTS["postgres"], enclose=enclose)
    with pytest.raises(ValueNotRepresentable, match=r"column s, row 2: .*U\+0000.*--dialect"):
        text_encoders.written(name, pa.record_batch({"s": ["a", "a\0b"]}), postgres)
    streamed = replace(DIALECTS["sqlldr-var"], record_length_digits=0, eol="<EOR>", enclose=enclose)
    batch = pa.record_batch({"s": ["<EO", "a<EOR>b"]})
    with pytest.raises(ValueNotRepresentable, match=r"row 2: .*'<EOR>'.*--record-length"):
        text_encoders.written(name, batch, streamed)
    assert text_encoders.written(name, batch, replace(streamed, record_length_digits=10))
    wide = pa.record_batch({"s": ["x" * 3_000_000 + "\0"]})
    large = held_row(wide)
    assert large is not None
    with pytest.raises(ValueNotRepresentable, match=r"U\+0000"):
        list(text_encoders.encoder(name, wide.schema, postgres).encode_large(large))


@pytest.mark.parametrize("name", text_encoders.NAMES)
@pytest.mark.parametrize(
    ("options", "values", "lines"),
    [
        (
            {"escape": "backslash"},
            ["a\\b", "NULL", "nULL", "\\"],
            ['"a\\\\b"', '"NULL"', "nULL", '"\\\\"'],
        ),
        ({"escape": "backslash", "null": "\\N"}, ["\\N", None, "N"], ['"\\\\N"', "\\N", "N"]),
        ({"null": "\\N"}, ["", None, "\\.", "a"], ['""', "\\N", '"\\."', "a"]),
        ({}, ["", None, "NULL", "\\"], ['""', "", "NULL", "\\"]),
    ],
)
def test_minimal_encloses_what_programs_read_in_different_ways(name, options, values, lines):
    """A backslash where it escapes, NULL there, and an empty text that is alone in its record."""
    text = TextFormat(header=False, **options)
    found = text_encoders.written(name, pa.record_batch({"s": pa.array(values, pa.string())}), text)
    assert found.decode().split("\n") == [*lines, ""]


@pytest.mark.parametrize("name", text_encoders.NAMES)
@pytest.mark.parametrize("zone", ["UTC", "Z", "+02:00", "Europe/Berlin"])
def test_timestamps_for_mysql_are_in_utc(name, zone):
    """No offset is written, which MariaDB refuses, and the instant stays the same."""
    moment = datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
    array = pa.array([moment, None], pa.timestamp("us", zone))
    found = text_encoders.written(name, pa.record_batch({"t": array}), DIALECTS["mysql"])
    assert found == b'"2024-07-01 12:00:00.123456"\n\\N\n'


@pytest.mark.parametrize("name", text_encoders.NAMES)
def test_timestamps_with_an_offset_each_are_moved_to_utc(name):
    """Over midnight, the new year, and the years before 1; a Julian day cannot be moved."""
    field = pa.field("t", pa.string(), metadata={"text_class": "timestamp"})
    texts = [
        "2024-01-01 00:30:00.123456789 +01:00",
        "1999-12-31 23:30:00 -05:30",
        "2000-03-01 01:00:00 +14:00[Pacific/Kiritimati]",
        "-0044-03-15 00:00:00 +00:00",
        "2024-07-01 12:00:00",
    ]
    batch = pa.record_batch([pa.array(texts)], schema=pa.schema([field]))
    found = text_encoders.written(name, batch, replace(DIALECTS["mysql"], enclose="minimal"))
    assert found.decode().splitlines() == [
        "2023-12-31 23:30:00.123456789",
        "2000-01-01 05:00:00",
        "2000-02-29 11:00:00",
        "0044-03-15 00:00:00 BC",
        "2024-07-01 12:00:00",
    ]
    julian = pa.record_batch([pa.array(["1500-02-29 00:00:00 +01:00"])], schema=pa.schema([field]))
    with pytest.raises(ValueNotRepresentable, match="--timestamp-tz-format"):
        text_encoders.written(name, julian, DIALECTS["mysql"])


SCHEMA = pa.schema([("a", pa.string())])
ROOT = Path(__file__).parents[3]
WITHOUT = """
import os, sys
os.environ["UNLOADER_NATIVE_LIBRARY"] = ""
"""
"""The beginning of a process without the library of the text encoder."""


def told(code: str) -> str:
    """Return what a fresh process without a library prints."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_auto_is_the_plain_encoder_without_a_library_and_native_is_refused() -> None:
    """The refusal says why, and what to do next."""
    lines = told(
        "import pyarrow as pa\n"
        "from writers.text.text_writer import open_encoder\n"
        "from writers.errors import FormatError\n"
        "from writers.model import TextFormat\n"
        "schema = pa.schema([('a', pa.string())])\n"
        "print(type(open_encoder(schema, TextFormat())).__name__)\n"
        "try:\n    open_encoder(schema, TextFormat(), 'native')\n"
        "except FormatError as error:\n    print(error)\n"
    ).splitlines()
    assert lines[0] == "PlainEncoder"
    assert "switches it off" in lines[1]
    assert "Next: install a C++ compiler" in lines[1]
