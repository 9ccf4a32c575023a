"""Output encodings in C++: the bytes of Python's codecs, for every character and beside any other."""

from __future__ import annotations

import encodings
import pkgutil
import random
from functools import lru_cache

import pyarrow as pa
import pytest
from encoders.text_encoders import encoder
from long_tests import OTHER_ROUTES, also

from writers.errors import FormatError, ValueNotRepresentable
from writers.model import TextFormat
from writers.native.description import charset_description
from writers.text.output_encoding import OutputEncoding

LARGE = ("big5", "cp932", "euc_jp", "euc_kr", "gb18030", "gbk", "shift_jis")
WIDE = ("utf-16", "utf-16-be", "utf-32", "utf-32-be", "utf-8-sig")
SMALL = ("ascii", "cp037", "cp1252", "koi8-r", "latin-1")
_FEW = ("cp932", "gb18030", "utf-16", "utf-8-sig", "cp1252")
_OTHERS = (each for each in (*LARGE, *WIDE, *SMALL) if each not in _FEW)
EVERY = [*_FEW, *also(OTHER_ROUTES, *_OTHERS)]
SURROGATES = range(0xD800, 0xE000)


def plain_format(encoding: str) -> TextFormat:
    """Return a format in which a value of one column stands as it is."""
    return TextFormat(
        delimiter="\x01", enclosure="", enclose="none", header=False, encoding=encoding, null="\x02"
    )


def written(name: str, values: list[str], encoding: str) -> bytes:
    """Return the records of one column of text."""
    batch = pa.record_batch([pa.array(values, pa.string())], ["text"])
    return bytes(encoder(name, batch.schema, plain_format(encoding)).encode(batch))


@lru_cache(maxsize=2)
def characters(encoding: str) -> list[str]:
    """Return what an encoding holds of the first plane, and every so many characters beyond it."""
    found = OutputEncoding(encoding)
    numbers = [*range(32, 0x10000), *range(0x10000, 0x110000, 9973), 0x10FFFF]
    tried = [chr(number) for number in numbers if number not in SURROGATES]
    return [character for character in tried if found.holds(character)]


@pytest.mark.parametrize("encoding", EVERY)
def test_every_character_has_the_codes_of_the_codec(encoding: str) -> None:
    """Each character that the encoding holds, in runs of many, is written as the codec does."""
    held = characters(encoding)
    rows = ["".join(held[start : start + 97]) for start in range(0, len(held), 97)]
    found = OutputEncoding(encoding)
    assert written("native", rows, encoding) == b"".join(found.encode(row + "\n") for row in rows)


@pytest.mark.parametrize("encoding", EVERY)
def test_ascii_and_other_characters_may_stand_in_any_order(encoding: str) -> None:
    """Runs of ASCII of every length between other characters do not change a byte."""
    draw = random.Random(encoding)
    held = [each for each in characters(encoding) if ord(each) > 127] or ["x"]
    rows = [
        "".join("a" * draw.randrange(20) + draw.choice(held) for _ in range(draw.randrange(6)))
        for _ in range(200)
    ]
    rows.append("ends in ascii")
    assert written("native", rows, encoding) == written("plain", rows, encoding)


@pytest.mark.parametrize("encoding", [*LARGE, *SMALL])
def test_a_character_without_a_code_is_refused_as_by_the_plain_encoder(encoding: str) -> None:
    """The error is the same, whichever character it is."""
    found = OutputEncoding(encoding)
    lacking = [each for each in "ÿ€Жあ한Ⅷ𝄞\ue000" if not found.holds(each)]
    for character in lacking:
        messages = []
        for name in ("native", "plain"):
            with pytest.raises(ValueNotRepresentable) as error:
                written(name, ["fits", f"no {character}"], encoding)
            messages.append(str(error.value))
        assert messages[0] == messages[1]
        assert f"U+{ord(character):04X}" in messages[0]


def test_what_reads_back_joined_with_its_neighbours_is_refused() -> None:
    """A Hangul filler begins a syllable to a reader of EUC-KR, which takes the next letters to it."""
    for name in ("native", "plain"):
        with pytest.raises(ValueNotRepresentable, match="euc_kr"):
            written(name, ["\u3164\u3131\u314f\u3134"], "euc_kr")


def test_encodings_with_states_or_shared_codes_are_left_to_the_plain_encoder() -> None:
    """Where a character's bytes depend on its neighbours there is no description."""
    for encoding in ("iso2022_jp", "euc_jis_2004", "euc_jisx0213", "big5hkscs"):
        assert charset_description(TextFormat(encoding=encoding)) is None
        text = ["か゚x", "か"] if encoding == "euc_jis_2004" else ["か", "x"]
        assert written("native", text, encoding) == written("plain", text, encoding)


def test_every_other_encoding_that_records_can_be_written_in_has_a_description() -> None:
    """All single-byte sets of Python are among them, EBCDIC as well."""
    stateful = ("iso2022", "big5hkscs", "euc_jis", "shift_jis_2004", "shift_jisx0213", "charmap")
    named = sorted(module.name for module in pkgutil.iter_modules(encodings.__path__))
    described = 0
    for name in named:
        try:
            OutputEncoding(name)
        except FormatError:
            continue
        if not name.startswith(stateful):
            assert charset_description(TextFormat(encoding=name)) is not None, name
            described += 1
    assert described > 80
