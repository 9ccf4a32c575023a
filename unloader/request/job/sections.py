"""One table of a job file while it is read, and what is wrong with a key that stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from unloader.errors import UsageError
from unloader.request.job.including import Document
from unloader.request.job.model import Mistake, Place
from unloader.request.option import Option, Scope, of_scope
from unloader.request.settings import PASSWORD_KEYS

Keys = Mapping[str, tuple[Option, bool]]
"""Keys with their options, and whether they say the opposite."""

_UNSHOWN = "it has an unknown key or table"


def keys_of(options: Iterable[Option]) -> dict[str, tuple[Option, bool]]:
    """Return each key of some options, with its option and whether it says the opposite."""
    return {key: (each, key != each.key) for each in options for key in each.keys}


def key_of(written: str) -> str:
    """Return a key as it is known here, however it is written."""
    return written.replace("-", "_").lower()


def are_tables(value: Any) -> bool:
    """Return whether a value is a list of tables."""
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) for e in value)


class Section(Struct, frozen=True, kw_only=True):
    """What may stand in a table of a file, and how it is called."""

    document: Document
    options: tuple[Option, ...]
    """Those of a run."""
    scope: Scope
    path: tuple[str | int, ...] = ()
    entry: str = ""
    is_default: bool = False
    own: tuple[str, ...] = ()
    """Keys of the grammar that may stand there and are no options."""
    others: frozenset[str] = frozenset()
    """Keys of options that stand on the command line alone."""

    def known(self) -> Keys:
        """Return the options that may stand there."""
        return keys_of(of_scope(self.options, self.scope))

    def place(self, written: str) -> Place:
        """Return where a key stands."""
        return self.document.place(*self.path, written)

    def mistake(self, written: str, text: str, hint: str, *, named: bool = True) -> Mistake:
        """Return what is wrong with a key.

        Args:
            written: The key.
            text: What is wrong.
            hint: What to do next.
            named: The key may be told.
        """
        place = self.place(written)
        where = f"{place}: {self.entry}" if self.entry else str(place)
        return Mistake(
            error=UsageError(f"{where}: {text}", hint),
            place=place,
            key=written.replace("_", "-") if named else "",
            entry=self.entry,
        )

    def wrong_key(self, written: str, value: Any) -> Mistake | None:
        """Return what is wrong with a key that may not stand here; None if it may."""
        key, known = key_of(written), self.known()
        if key in PASSWORD_KEYS:
            return self._password(written)
        if key in known or key in self.own:
            return None
        if isinstance(value, (dict, list)) and _has_tables(value):
            shown = f"unknown table [{written}]" if _may_be_shown(written) else _UNSHOWN
            hint = "write its keys at the top of the file, or below a line [run]"
            return self.mistake(written, shown, hint, named=False)
        if key in self.others and key not in keys_of(self.options):
            return self.mistake(
                written,
                f"a job file holds options of run, not {written}",
                f"give --{key.replace('_', '-')} on the command line",
            )
        elsewhere = keys_of(self.options).get(key)
        if elsewhere is not None:
            return self._elsewhere(written, elsewhere[0])
        return self._no_key(written, (*known, *self.own))

    def _password(self, written: str) -> Mistake:
        error = UsageError(
            f"{self.document.path} holds a password, where backups and version control find it",
            "use the key password-file, or set UNLOADER_PASSWORD",
        )
        return Mistake(error=error, place=self.place(written), entry=self.entry)

    def _elsewhere(self, written: str, option: Option) -> Mistake:
        """Return the mistake of an option that is not of one table or route alone."""
        if option.scope == "table":
            text = f"the key {written!r} belongs to a table, and not to one of its routes"
            return self.mistake(written, text, "write it below [[table]], or at the top")
        text = f"the key {written!r} belongs to the whole run, and not to one {self.scope}"
        return self.mistake(written, text, "write it at the top of the file")

    def _no_key(self, written: str, known: Iterable[str]) -> Mistake:
        """Return the mistake of a key that there is not; what looks like no key is not shown."""
        from difflib import get_close_matches

        names = [name.replace("_", "-") for name in known]
        near = get_close_matches(written.replace("_", "-").lower(), names, n=1, cutoff=0.5)
        named = _may_be_shown(written)
        hint = f"did you mean {near[0]!r}?" if near else "use one of: " + ", ".join(sorted(names))
        shown = f"unknown key {written!r}" if named else _UNSHOWN
        return self.mistake(written, shown, hint, named=named)


def _has_tables(value: Any) -> bool:
    return isinstance(value, dict) or any(isinstance(each, dict) for each in value)


def _may_be_shown(written: str) -> bool:
    """Return whether something looks like the name of an option, not like a secret."""
    return re.fullmatch("[A-Za-z]+([-_][A-Za-z]+)*", written) is not None
