"""The named dialects, and contradictions between the options of a format."""

from dataclasses import replace

import pytest

from writers.errors import FormatError
from writers.model import TextFormat
from writers.text.dialects import DIALECTS, check, dialect


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_dialects_are_free_of_contradictions(name):
    """Every named dialect passes its own check, in other encodings too."""
    check(dialect(name))
    for encoding in ("latin-1", "cp932", "cp500", "utf-16-le", "UTF-16", "utf-8-sig", "gb18030"):
        check(replace(dialect(name), encoding=encoding))


def test_unknown_dialect_names_the_known_ones():
    """The error lists what there is."""
    with pytest.raises(FormatError, match="excel, mysql, postgres, rfc4180, sqlldr-var, tsv"):
        dialect("cvs")


def test_rfc4180_is_the_default():
    """The default format is rfc4180; only some dialects have a header."""
    assert dialect("rfc4180") == TextFormat()
    assert {n for n in DIALECTS if dialect(n).header} == {"rfc4180", "tsv", "excel"}


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


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ";", "decimal_separator": ","},
        {"decimal_separator": ","},
        {"decimal_separator": ",", "enclose": "none", "escape": "backslash"},
        {"enclosure": "", "enclose": "none"},
        {"delimiter": "\x01", "eol": "\x02", "enclosure": "", "enclose": "none"},
        {"delimiter": "||", "enclosure": "~~", "eol": "\r\n"},
        {"null": "\\N", "escape": "backslash"},
        {"record_length_digits": 20, "header": True},
    ],
)
def test_unusual_but_clear_formats_pass(options):
    """Formats that a reader can take apart are not refused."""
    check(TextFormat(**options))


def test_null_may_not_end_in_the_escape_character():
    """A NULL of one backslash would escape the delimiter behind it; two are a text of their own."""
    with pytest.raises(FormatError, match=r"--null .* ends in the escape character"):
        check(TextFormat(escape="backslash", null="\\"))
    check(TextFormat(escape="backslash", null="\\\\"))
    check(TextFormat(null="\\"))
