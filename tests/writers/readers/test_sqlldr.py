"""A reader by SQL*Loader's published rules reads what the encoders wrote.

It claims the records of `"var n"` whatever is in them; of `"str 'text'"` where no value holds the
text, since the loader cuts there, enclosed or not; and of `"fix n"`. Text must be enclosed always:
the loader takes leading blanks off bare values, and a field of blanks is NULL.
"""

import pytest
from encoders.hostile_texts import hostile_batch, hostile_texts, rows_of
from encoders.sqlldr_rules import (
    Field,
    FieldList,
    RejectedRecord,
    fixed_records,
    stream_records,
    var_records,
)
from msgspec.structs import replace

from writers.model import FixedField, TextFormat
from writers.text.dialects import DIALECTS

FOUR = (Field(),) * 4


def field_list(form, fields=FOUR):
    return FieldList(
        fields=fields,
        terminated_by=form.delimiter,
        optionally_enclosed_by=form.enclosure,
        trailing_nullcols=True,
        characterset=form.encoding,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enclosure": '"', "eol": "\n"},
        {"enclosure": "<>", "delimiter": "|;|", "enclose": "all"},
        {"record_length_digits": 6, "enclosure": "'", "delimiter": "\t"},
    ],
)
def test_var_records_come_back(options, write):
    """Every value and NULL of sqlldr-var, and of dialects near it, is read back."""
    form = replace(DIALECTS["sqlldr-var"], **options)
    batch = hostile_batch(hostile_texts(form))
    records = var_records(write(batch, form), form.record_length_digits)
    assert [field_list(form).values(record) for record in records] == rows_of(batch)


@pytest.mark.parametrize("encoding", ["cp932", "gb18030", "latin-1", "euc_jp"])
def test_var_records_count_bytes_of_their_character_set(encoding, write):
    """Lengths count bytes in the data file's character set, and values come back from it."""
    form = replace(DIALECTS["sqlldr-var"], encoding=encoding)
    # These are what the encodings hold both ways; the others are refused, which is tested elsewhere.
    batch = hostile_batch([t for t in hostile_texts(form) if same_in(t, encoding)])
    records = var_records(write(batch, form), 10)
    assert [field_list(form).values(record) for record in records] == rows_of(batch)


def same_in(text, encoding):
    try:
        return all(c.encode(encoding).decode(encoding) == c for c in text)
    except UnicodeError:
        return False


@pytest.mark.parametrize("eol", ["\n", "\r\n", "|\n", "\x1e"])
def test_stream_records_come_back(eol, write):
    """Every value without the terminator in it is read back from records that end in a text."""
    form = TextFormat(enclose="all", eol=eol, header=False)
    texts = [t for t in hostile_texts(form) if eol not in t and not (t + '"').endswith(eol)]
    batch = hostile_batch(texts)
    records = stream_records(write(batch, form), eol.encode())
    assert [field_list(form).values(record) for record in records] == rows_of(batch)


def test_nullif_makes_a_null_text_null(write):
    """A NULL text that no value has becomes NULL under NULLIF, and the empty text does not."""
    form = replace(DIALECTS["sqlldr-var"], null="<null>")
    batch = hostile_batch([t for t in hostile_texts(form) if t != "<null>"])
    rules = field_list(form, (Field(nullif="<null>"),) * 4)
    records = var_records(write(batch, form), 10)
    assert [rules.values(record) for record in records] == rows_of(batch)


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_fixed_records_come_back(eol, write):
    """Every value that fits its field and ends in no blank is read back from `fix n` records."""
    width = 40
    fixed = tuple(
        FixedField(start=width * place, width=width, right=place == 2) for place in range(4)
    )
    form = TextFormat(fixed=fixed, header=False, eol=eol, enclosure="", enclose="none")
    texts = [t for t in hostile_texts(form) if t and len(t.encode()) <= width and t[-1] > " "]
    batch = hostile_batch(texts)
    fields = tuple(Field(position=(width * at + 1, width * (at + 1))) for at in range(4))
    rules = FieldList(fields=fields)
    records = fixed_records(write(batch, form), 4 * width + len(eol))
    found = [rules.values(record) for record in records]
    # The number stands at the right end of its field; the loader's INTEGER EXTERNAL takes that.
    expected = [(*row[:2], row[2].rjust(width), row[3]) for row in rows_of(batch)]
    assert found == expected


def test_the_rules_themselves():
    """The reader rejects what SQL*Loader rejects, and trims what it trims."""
    given = {"fields": (Field(),) * 2, "terminated_by": ",", "optionally_enclosed_by": '"'}
    rules = FieldList(**given)
    assert rules.values(b'  a , "b ""c"" "  ') == ("a ", 'b "c" ')
    assert rules.values(b'"",') == ("", None)
    assert FieldList(**given, trailing_nullcols=True).values(b"a") == ("a", None)
    assert rules.values(b"a,b,more") == ("a", "b")
    for bad in (b"a", b'"a"b,c', b'"a,b'):
        with pytest.raises(RejectedRecord):
            rules.values(bad)
    fixed = FieldList(fields=(Field(position=(1, 3)), Field(position=(4, 6))))
    assert fixed.values(b" a    ") == (" a", None)
    with pytest.raises(RejectedRecord):
        var_records(b"003abc0", 3)
