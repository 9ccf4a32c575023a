"""Hypothesis strategies: any dialect of delimited text that `writers.text.dialects.check` accepts."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from writers.errors import FormatError
from writers.model import TextFormat
from writers.text.dialects import DIALECTS, check
from writers.text.masks import GROUPS

DELIMITERS = (*",;\t|\x01-", "||", "|~|", "aba", "<|", "é", "日本", ",\t", " ", "1", "\\", ":")
ENCLOSURES = ('"', "'", "~~", "<>", '"a"', "``", "«", "~~~", "xyx", "0", "", "")
ENDS = ("\n", "\n", "\r\n", "\r", "\x02", ".\n", ";;", "\n\n", "zz", "ö", "\\\n")
NULLS = ("", "", "\\N", "NULL", "0", "true", "\\\\", "b", "-", "∅", "\\", "1970-01-01", "NaN", "\t")
UTF_8 = ("utf-8", "utf8", "UTF-8", "utf-8-sig")
OTHERS = (
    *("latin-1", "cp1252", "ascii", "koi8-r", "cp037", "cp932", "shift_jis", "euc_jp"),
    *("gb18030", "gbk", "big5", "euc_kr", "utf-16", "utf-16-be", "utf-32", "iso8859-15"),
    *("euc_jis_2004", "big5hkscs", "cp1258", "mac_roman"),
)
_ELEMENTS = tuple(sorted(name for name in GROUPS if not name.startswith("ISO-")))
_ZONED = ("TZH", "TZM", "TZR")
_MARK = st.text(st.sampled_from('ab|~"<>;\t\x01é日-. '), min_size=1, max_size=4)


@st.composite
def masks(draw: st.DrawFn, *, zone: bool = False) -> str | None:
    """Draw an Oracle mask, or None for ISO 8601."""
    if draw(st.integers(0, 2)) == 0:
        return None
    known = draw(
        st.sampled_from(
            ("YYYYMMDDHH24MISS", "YYYY-MM-DD", "SYYYY-MM-DD HH24:MI:SS.FF", "DD-MON-RR", "YYYY", "")
        )
    )
    if known:
        return known + ("TZH:TZM" if zone and draw(st.booleans()) else "")
    names = st.sampled_from([n for n in _ELEMENTS if zone or n not in _ZONED])
    piece = st.one_of(
        names,
        names,
        names.map(str.lower),
        names.map(str.capitalize),
        st.sampled_from(
            (*"-/,.;: ", "FF3", "FF6", "FF9", "FF1", "FM", "X", '"T"', '"Größe"', '"""')
        ),
        st.sampled_from(string.punctuation),
    )
    return "".join(draw(st.lists(piece, min_size=1, max_size=8)))


@st.composite
def formats(draw: st.DrawFn, *, encodings: bool = True) -> TextFormat:
    """Draw a dialect: one of the named ones, changed a little, or any other."""
    options: dict[str, Any] = {
        "date_format": draw(masks()),
        "timestamp_format": draw(masks()),
        "timestamp_tz_format": draw(masks(zone=True)),
        "fractions": draw(st.sampled_from(("mask", "mask", "keep"))),
        "decimal_separator": draw(st.sampled_from("." * 3 + ",;_'é|")),
        "boolean": draw(st.sampled_from(("true/false", "t/f", "1/0"))),
        "binary": draw(st.sampled_from(("prefixed-hex", "hex", "base64"))),
        "substitute": draw(st.sampled_from((None, None, "?", "", "<,?>"))),
        "header": draw(st.booleans()),
        "trailing_delimiter": draw(st.booleans()),
        "record_length_digits": draw(st.sampled_from((0, 0, 0, 2, 3, 10, 20))),
    }
    if encodings:
        group = draw(st.sampled_from((UTF_8, UTF_8, OTHERS)))
        options["encoding"] = draw(st.sampled_from(group))
    if draw(st.integers(0, 3)) == 0:
        named = DIALECTS[draw(st.sampled_from(sorted(DIALECTS)))]
        chosen = {name: getattr(named, name) for name in TextFormat.__struct_fields__}
        kept = draw(st.sets(st.sampled_from(sorted(options))))
        options = {**chosen, **{name: options[name] for name in kept}}
    else:
        options |= {
            "delimiter": draw(st.sampled_from(DELIMITERS) | _MARK),
            "enclosure": draw(st.sampled_from(ENCLOSURES) | _MARK),
            "enclose": draw(st.sampled_from(("minimal", "minimal", "strings", "all", "none"))),
            "escape": draw(st.sampled_from(("double", "double", "backslash", "none"))),
            "null": draw(st.sampled_from(NULLS)),
            "eol": draw(st.sampled_from(ENDS)),
        }
    chosen_format = TextFormat(**options)
    try:
        check(chosen_format)
    except FormatError:
        assume(False)
    return chosen_format
