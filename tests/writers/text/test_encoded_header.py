"""The header made without the encoder is the encoder's own."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from writers.errors import FormatError
from writers.model import TextFormat
from writers.text.delimited import PlainEncoder
from writers.text.dialects import DIALECTS, check
from writers.text.encoded_header import is_simple, simple_header

NAMES = st.lists(
    st.text(st.sampled_from('ab",;\n\r\\.\t é'), max_size=4), min_size=1, max_size=4, unique=True
)


@given(
    names=NAMES,
    delimiter=st.sampled_from([",", ";", "\t"]),
    enclose=st.sampled_from(["minimal", "strings", "all"]),
    eol=st.sampled_from(["\n", "\r\n", "|\n"]),
    null=st.sampled_from(["", "a", r"\N"]),
    header=st.booleans(),
    trailing=st.booleans(),
)
def test_equal_to_the_encoders_header(names, delimiter, enclose, eol, null, header, trailing):
    """Whatever the names and the simple dialect, both give the same bytes."""
    form = TextFormat(
        delimiter=delimiter,
        enclose=enclose,
        eol=eol,
        null=null,
        header=header,
        trailing_delimiter=trailing,
    )
    try:
        check(form)
    except FormatError:
        return
    assert is_simple(form)
    schema = pa.schema([(name, pa.string()) for name in names])
    assert simple_header(names, form) == PlainEncoder(schema, form).header()


@pytest.mark.parametrize("name", ["tsv", "mysql", "sqlldr-var", "excel"])
def test_other_dialects_are_left_to_the_encoder(name):
    """What is not simple is told apart."""
    assert not is_simple(DIALECTS[name])
