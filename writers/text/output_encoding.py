"""From UTF-8 records to the bytes of the output encoding, never replacing a character.

An encoding qualifies when it can be written piece by piece: ASCII text must have a fixed width
and no state. What it cannot hold, or would read back as another character (Shift JIS has a few),
is refused.
"""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import TYPE_CHECKING

from writers.errors import FormatError

if TYPE_CHECKING:
    import pyarrow as pa

_BYTE_ORDER_MARKS = {
    "utf-8-sig": ("utf-8", codecs.BOM_UTF8),
    "utf-16": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-32": ("utf-32-le", codecs.BOM_UTF32_LE),
}
"""Codecs that put a mark in front of everything they encode, and what to use behind the mark."""
_LOSSY = {"raw-unicode-escape", "unicode-escape", "utf-7", "punycode", "idna", "undefined"}
_ASCII = "".join(map(chr, range(128)))


class OutputEncoding:
    """An encoding by its Python name.

    Raises:
        FormatError: The name is unknown, or the codec does not encode plain text piece by piece.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            canonical = codecs.lookup(name).name
            "".encode(name)
        except LookupError:
            raise FormatError(
                f"unknown encoding {name!r}.",
                "give --encoding a name such as utf-8, latin-1, cp932 or utf-16-le.",
            ) from None
        except UnicodeError:
            raise _unfit(name) from None
        self._codec, self.preamble = _BYTE_ORDER_MARKS.get(canonical, (canonical, b""))
        """`preamble` is the byte order mark in front of each file, or nothing."""
        if canonical.replace("_", "-") in _LOSSY or not _is_piecewise(self._codec):
            raise _unfit(name)

    @property
    def is_utf8(self) -> bool:
        """Whether text leaves as it is."""
        return self._codec == "utf-8"

    @property
    def holds_all(self) -> bool:
        """Whether every character of Unicode can be written."""
        return self._codec.startswith("utf-")

    def encode(self, text: str) -> bytes:
        """Return the text in this encoding, without a byte order mark.

        Raises:
            UnicodeEncodeError: A character has no code here.
        """
        return text.encode(self._codec)

    def stream(self) -> EncodingStream:
        """Return an encoder of one text in pieces."""
        return EncodingStream(self._codec, checked=not self.is_utf8)

    def reads_back(self, text: str, encoded: bytes) -> bool:
        """Tell whether the bytes are the text and nothing else."""
        return encoded.decode(self._codec, "replace") == text

    def first_unfit(self, texts: pa.Array) -> tuple[int, str] | None:
        """Return index and first character of the first text that this encoding cannot hold."""
        for index, text in enumerate(texts.to_pylist()):
            if text is None:
                continue
            for character in text:
                if not self.holds(character):
                    return index, character
        return None

    def check_text(self, text: str, option: str) -> None:
        """Make sure that the text of an option can be written.

        Raises:
            FormatError: It cannot.
        """
        for character in text:
            if not self.holds(character):
                raise FormatError(
                    f"{option} {text!r} holds U+{ord(character):04X}, which {self.name} cannot "
                    f"write.",
                    f"change {option}, or use --encoding utf-8.",
                )

    def holds(self, character: str) -> bool:
        """Tell whether a character can be written, and is read back as itself."""
        try:
            return self.reads_back(character, self.encode(character))
        except UnicodeEncodeError:
            return False


class EncodingStream:
    """Encodes one text piece by piece, to the bytes that the whole text has.

    Args:
        codec: Its Python name.
        checked: Make sure that the bytes read back as the text.
    """

    def __init__(self, codec: str, *, checked: bool) -> None:
        self._encoder = codecs.getincrementalencoder(codec)()
        self._decoder = codecs.getincrementaldecoder(codec)("replace") if checked else None
        self._given = self._read = ""

    def encode(self, text: str, *, last: bool = False) -> bytes:
        """Return the next bytes; a codec may hold a character back until it sees the next.

        Raises:
            UnicodeError: The encoding has no code for a character, or reads it back as another.
        """
        encoded = self._encoder.encode(text, last)
        if self._decoder is not None:
            self._given += text
            self._read += self._decoder.decode(encoded, last)
            common = min(len(self._given), len(self._read))
            if self._given[:common] != self._read[:common] or (last and self._given != self._read):
                pairs = zip(self._given, self._read, strict=False)
                raise UnicodeError(next((a for a, b in pairs if a != b), ""))
            self._given, self._read = self._given[common:], self._read[common:]
        return encoded


def character_of(error: UnicodeError) -> str:
    """Return the character an `EncodingStream` failed at, or nothing if it is not known."""
    if isinstance(error, UnicodeEncodeError):
        return error.object[error.start]
    return str(error)


def _unfit(name: str) -> FormatError:
    return FormatError(
        f"{name!r} is not a character set that records can be written in.",
        "give --encoding a name such as utf-8, latin-1, cp932 or utf-16-le.",
    )


@lru_cache(maxsize=32)
def _is_piecewise(codec: str) -> bool:
    try:
        pieces = [character.encode(codec) for character in _ASCII]
        whole = _ASCII.encode(codec)
        return (
            whole == b"".join(pieces)
            and len({len(piece) for piece in pieces}) == 1
            and whole.decode(codec) == _ASCII
        )
    except UnicodeError:
        return False
