"""What a `--where` may not say, although Oracle takes it for a condition."""

from __future__ import annotations

import re

from unloader.errors import SourceError

_NO_CODE = re.compile(
    r"""n?q'(?:\[.*?\]|\{.*?\}|\(.*?\)|<.*?>|(\S).*?\1)'|'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/""",
    re.IGNORECASE | re.DOTALL,
)
"""Literals, quoted names and comments."""
_INNERMOST = re.compile(r"\(([^()]*)\)")
_SUBQUERY = re.compile(r"\s*(?:SELECT|WITH)\b", re.IGNORECASE)
_ROW_NUMBER = re.compile(r"(?<![\w$#])ROWNUM(?![\w$#])", re.IGNORECASE)


def refuse_row_numbers(where: str) -> None:
    """Refuse ROWNUM, which counts anew in each work unit; a sub-query may have its own.

    Raises:
        SourceError: The condition itself depends on ROWNUM.
    """
    code, last = _NO_CODE.sub(" ", where), ""
    while code != last:
        last, code = code, _INNERMOST.sub(_opened, code)
    if _ROW_NUMBER.search(code):
        raise SourceError(
            "--where uses ROWNUM, which starts from 1 in each work unit",
            "use --query instead, which is read as one work unit",
        )


def _opened(found: re.Match[str]) -> str:
    return " " if _SUBQUERY.match(found[1]) else f" {found[1]} "
