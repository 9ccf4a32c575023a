"""Output encodings as the native encoder takes them: tables made of Python's own codecs.

A character has a code here where the codec alone writes it and reads the same back, so bytes and
refusals are those of `writers.text.output_encoding` by construction. Encodings in which the bytes
of a character depend on what stands beside it are left to the plain encoder.
"""

from __future__ import annotations

import codecs
import encodings
from functools import lru_cache
from importlib import import_module

from writers.model import TextFormat

_WHOLE = {
    "utf-8": 0,
    "utf-8-sig": 0,
    "utf-16": 1,
    "utf-16-le": 1,
    "utf-16-be": 2,
    "utf-32": 3,
    "utf-32-le": 3,
    "utf-32-be": 4,
}
"""Encodings of all of Unicode by arithmetic, and their numbers in `charsets.h`."""
_TABLE = 5
_MULTIBYTE = frozenset(
    {
        "big5",
        "cp932",
        "cp949",
        "cp950",
        "euc_jp",
        "euc_kr",
        "gb18030",
        "gb2312",
        "gbk",
        "johab",
        "shift_jis",
    }
)
"""Those whose codes stand by themselves, unlike the JIS X 0213 family and Big5-HKSCS, where two
characters can share a code, and unlike ISO 2022, which has states."""
_FOUR_BYTE_LINEAR = "gb18030"
_JOINING = {"euc_kr": "\u3164"}
"""Characters that a codec takes, on reading, for the beginning of others."""

_CODE_BYTES = 4
_PAGE = 256
_FIRST_PLANE = 0x10000
_SURROGATES = range(0xD800, 0xE000)
_NO_CODE = b""


def charset_description(format: TextFormat) -> bytes | None:
    """Return what `Charset::make` takes for the format's encoding, without its byte order mark.

    The substitute plays no part: it has to be in a value before that is enclosed or escaped. A
    `Charset` stops at a character without a code, and the plain encoder, which then takes the
    batch, substitutes or refuses it.

    Returns:
        None where the encoding is not for C++. Made once a process and encoding; the largest,
        GB 18030, takes about 30 ms.
    """
    return _description(codecs.lookup(format.encoding).name)


@lru_cache(maxsize=8)
def _description(codec: str) -> bytes | None:
    if codec in _WHOLE:
        return bytes([_WHOLE[codec]])
    if codec in _MULTIBYTE:
        characters, codes = _multibyte_codes(codec)
    elif _is_single_byte(codec):
        characters, codes = _single_byte_codes(codec)
    else:
        return None
    return _table(dict(zip(characters, codes, strict=True)), linear=_is_linear(codec))


def _is_single_byte(codec: str) -> bool:
    if codec == "ascii":
        return True
    try:
        module = import_module(f"encodings.{encodings.normalize_encoding(codec)}")
    except ImportError:
        return False
    return len(getattr(module, "decoding_table", "")) == _PAGE


def _single_byte_codes(codec: str) -> tuple[str, list[bytes]]:
    characters = "".join(sorted(set(bytes(range(_PAGE)).decode(codec, "ignore"))))
    return characters, [_code(character, codec) for character in characters]


def _multibyte_codes(codec: str) -> tuple[str, list[bytes]]:
    """Return the characters of the first plane and their codes, all in a few calls of the codec."""
    plain = "".join(map(chr, range(128)))
    others = "".join(chr(c) for c in range(128, _FIRST_PLANE) if c not in _SURROGATES)
    others = others.translate({ord(character): None for character in _JOINING.get(codec, "")})
    # No code of these sets has a byte below 0x30, so ends of line separate them.
    codes = "\n".join(others).encode(codec, "replace").split(b"\n")
    read = b"\n".join(codes).decode(codec, "replace").split("\n")
    kept = [
        code if back == character and len(code) <= _CODE_BYTES else _NO_CODE
        for character, code, back in zip(others, codes, read, strict=True)
    ]
    return plain + others, [_code(character, codec) for character in plain] + kept


def _code(character: str, codec: str) -> bytes:
    try:
        code = character.encode(codec)
        return code if code.decode(codec) == character else _NO_CODE
    except UnicodeError:
        return _NO_CODE


def _is_linear(codec: str) -> bool:
    """Tell whether characters beyond the first plane have the codes that C++ reckons."""
    if codec != _FOUR_BYTE_LINEAR:
        return False
    # A prime step meets every place of the four digits; the ends are met in any case.
    tried = (*range(_FIRST_PLANE, 0x110000, 997), 0x10FFFF)
    return all(_code(chr(number), codec) == _linear_code(number - _FIRST_PLANE) for number in tried)


def _linear_code(index: int) -> bytes:
    index, fourth = divmod(index, 10)
    index, third = divmod(index, 126)
    first, second = divmod(index, 10)
    return bytes([0x90 + first, 0x30 + second, 0x81 + third, 0x30 + fourth])


def _table(codes: dict[str, bytes], *, linear: bool) -> bytes:
    """Return the form that `charsets.cpp` reads: a header, the number of each page, the pages."""
    known = {ord(character): code for character, code in codes.items() if code}
    used = sorted({number // _PAGE for number in known})
    numbers = bytearray(2 * _PAGE)
    pages = bytearray()
    for place, page in enumerate(used, 1):
        numbers[2 * page : 2 * page + 2] = place.to_bytes(2, "little")
        held = [known.get(page * _PAGE + index, _NO_CODE) for index in range(_PAGE)]
        pages += bytes(map(len, held))
        pages += b"".join(code.ljust(_CODE_BYTES, b"\0") for code in held)
    keeps_ascii = all(known.get(number) == bytes([number]) for number in range(128))
    # Bytes a byte of UTF-8 may become: two of them make the four of a linear code's two letters.
    growth = max(
        -(-len(code) // (1 if number < 0x80 else 2 if number < 0x800 else 3))
        for number, code in known.items()
    )
    header = bytes([_TABLE, keeps_ascii, linear, growth, *len(used).to_bytes(2, "little")])
    return header + numbers + pages
