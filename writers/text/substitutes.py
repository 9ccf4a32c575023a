"""What stands for characters that the output encoding lacks, where the format has a substitute.

Characters are replaced in the values themselves, before anything is enclosed, escaped or counted:
a substitute that holds the delimiter is then enclosed as any such value is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from writers.text.large_texts import Pieces
from writers.text.output_encoding import OutputEncoding
from writers.text.string_arrays import compact, value_bytes


class Substitutes:
    """The substitute of one format.

    Args:
        encoding: Decides which characters are replaced: those it has no code for, or would read
            back as another.
        substitute: Written for each of them.
    """

    def __init__(self, encoding: OutputEncoding, substitute: str) -> None:
        self._encoding = encoding
        self._table = _Table(encoding, substitute)

    def array(self, texts: pa.Array) -> pa.Array:
        """Return string or large_string texts with substitutes; null stays."""
        if self._fits(texts):
            return texts
        replaced = [
            None if text is None else text.translate(self._table) for text in texts.to_pylist()
        ]
        return compact(pa.array(replaced, pa.large_string()))

    def pieces(self, pieces: Pieces) -> Pieces:
        """Return a text that comes in pieces with substitutes."""
        return partial(self._replaced, pieces)

    def _replaced(self, pieces: Pieces) -> Iterator[str]:
        for piece in pieces():
            yield piece.translate(self._table)

    def _fits(self, texts: pa.Array) -> bool:
        """Tell, of all texts at once, whether none needs a substitute."""
        try:
            text = str(value_bytes(texts), "utf-8")
            return text.isascii() or self._encoding.reads_back(text, self._encoding.encode(text))
        except UnicodeError:
            return False


class _Table(dict[int, "int | str"]):
    """What `str.translate` puts in place of a character; filled as characters are met."""

    def __init__(self, encoding: OutputEncoding, substitute: str) -> None:
        super().__init__()
        self._encoding = encoding
        self._substitute = substitute

    def __missing__(self, code: int) -> int | str:
        kept = self._encoding.holds(chr(code))
        self[code] = result = code if kept else self._substitute
        return result
