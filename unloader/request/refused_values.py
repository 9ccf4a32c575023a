"""Messages on values that were refused, without the value: it may be a password.

A value is shown only if it is a number or very like a word that belongs where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SUBJECT = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?= )""")
_NUMBER = re.compile(r"[0-9\s.,:+-]{0,24}(?:[A-Za-z%]{1,3}|\s[a-z]{1,9})?")


def may_be_shown(text: str, belonging: Iterable[str] = ()) -> bool:
    """Return whether a refused text is a number, a mark, or like one of the words that belong."""
    if len(text) < 4 or _NUMBER.fullmatch(text):
        return True
    from difflib import get_close_matches

    return bool(get_close_matches(text.lower(), list(belonging), n=1, cutoff=0.75))


def without_subject(message: str) -> str:
    """Return a message about a value, such as `'x' is not a number`, without the value."""
    subject = _SUBJECT.match(message)
    if subject is None:
        return message
    rest = message[subject.end() :]
    belonging = re.findall(r"[a-z0-9][a-z0-9-]{2,}", rest.lower())
    if may_be_shown(subject[1][1:-1], belonging):
        return message
    return f"the value{rest}"
