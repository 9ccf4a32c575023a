"""Records counted in text that passes through, whatever pieces it comes in."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from writers.built_library import Unusable
from writers.model import Compression, OutputSpec, TextFormat
from writers.native import library
from writers.text.text_writer import EncodedTextWriter, RecordCounter

VALUES = st.lists(
    st.lists(st.text('a"\n, é\r', max_size=6), min_size=2, max_size=2), min_size=1, max_size=8
)


@pytest.fixture(params=["native", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the native library, and as if it had not been built."""
    if request.param == "plain":
        monkeypatch.setattr("writers.text.text_writer.library", _unusable)
    elif why := library.why_not():
        pytest.skip(f"the native encoder is not in use: {why}")
    return request.param


def _unusable() -> None:
    raise Unusable("it was not built")


def _counted(text: bytes, cuts: list[int]) -> int:
    counter = RecordCounter(b'"')
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for number, (start, end) in enumerate(pairwise(places)):
        piece = text[start:end]
        counter.add((bytes, bytearray, memoryview)[number % 3](piece))
    return counter.records


@pytest.mark.usefixtures("way")
def test_records_are_those_of_a_csv_reader() -> None:
    """Line ends and quotes within values, and cuts anywhere, change no count."""

    @given(VALUES, st.lists(st.integers(0, 60), max_size=5), st.booleans())
    def check(rows: list[list[str]], cuts: list[int], every: bool) -> None:
        text = io.StringIO()
        quoting = csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL
        csv.writer(text, lineterminator="\n", quoting=quoting).writerows(rows)
        assert _counted(text.getvalue().encode(), cuts) == len(rows)

    check()


@pytest.mark.usefixtures("way")
def test_a_text_larger_than_a_window(tmp_path: Path) -> None:
    """A value of megabytes is one record, and the header of a file is none."""
    spec = OutputSpec(
        directory=str(tmp_path), format=TextFormat(), compression=Compression(codec="none")
    )
    writer = EncodedTextWriter(spec, "t", b'"a\nb"\n')
    writer.write(memoryview(b'"' + b'x\n""' * 700_000 + b'"\n1\n'))
    assert writer.records == 2
    writer.abort()
