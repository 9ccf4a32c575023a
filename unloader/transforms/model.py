"""Steps on rows between reading and writing, as plain data.

Each step works on the columns that the steps before it have left. Steps contain the names of keys,
and no keys. A `MaskingKey` has the place of a key.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Alphabet = Literal[
    "digits", "lower", "upper", "letters", "digits-lower", "digits-upper", "alphanumeric"
]
"""alphanumeric: digits and letters of both cases."""

DEFAULT_KEY = "default"
"""Name of the key of a mask that names none."""

STEPS = {
    "keep": (("columns",), ()),
    "rename": (("names",), ()),
    "cast": (("column",), ("type",)),
    "constant": (("column",), ("value", "type")),
    "compute": (("column",), ("sql",)),
}
"""The fields that each kind of step needs, and the fields that it may have."""

MASKS = {
    "hmac": (("column",), ("key", "encoding", "length")),
    "tokenize": (("column",), ("key", "form", "domain")),
    "redact": (("column",), ("value",)),
    "truncate": (("column", "characters"), ()),
    "truncate-date": (("column", "to"), ()),
    "shift-date": (("column", "by", "days"), ("key", "domain")),
    "ff1": (("column",), ("key", "alphabet", "digits", "others", "tweak")),
}
"""The fields of steps that mask a column, by their names in `--mask`.

hmac: HMAC-SHA-256 of the canonical text. tokenize: the same token for the same value, key and
domain, in every column. redact: one constant, also for NULL; the type stays. truncate: the first
characters of a text. truncate-date: the first moment of the month or year. shift-date: a shift by
days, the same for all rows of one subject. ff1: FF1 of NIST SP 800-38G; the format stays.
"""


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step; ValueError for a field that its kind lacks or does not have: `STEPS`, `MASKS`."""

    step: Literal[
        "keep", "rename", "cast", "constant", "compute",
        "hmac", "tokenize", "redact", "truncate", "truncate-date", "shift-date", "ff1",
    ]  # fmt: skip
    column: str = ""
    """The column that is set, changed or masked. Constants and SQL add it at the end if it is not
    there."""
    columns: tuple[str, ...] = ()
    """The columns that are kept, in this order, and no others."""
    names: tuple[tuple[str, str], ...] = ()
    """Columns and their new names, given in one step so that two columns may exchange names."""
    type: str = ""
    """Of a cast or a constant, as `columns` prints it, such as int64, decimal(12,2) or
    timestamp[us, UTC]. A value that it cannot hold exactly stops the run. Empty is text."""
    value: str | None = None
    """The text of a constant; None is NULL."""
    sql: str = ""
    """An expression over the row, in DuckDB's SQL. Column names that are not plain are in double
    quotes."""
    key: str = DEFAULT_KEY
    """Name of the key; FF1 needs one of 16, 24 or 32 bytes."""
    encoding: Literal["hex", "base64"] = "hex"
    length: int = 0
    """Characters of a hash that are kept; 0 is all."""
    form: Literal["text", "uuid", "integer"] = "text"
    """text: 128 bits in 32 hexadecimal digits; uuid: 122 bits; integer: 63 bits, in an int64."""
    domain: str = ""
    """What kind of thing the values name: a customer 42 and an order 42 have different tokens."""
    characters: int = 0
    to: Literal["", "month", "year"] = ""
    by: str = ""
    """The column that names the subject. A date without a subject becomes NULL."""
    days: int = 0
    """The largest shift, forward or back; no shift is 0."""
    alphabet: Alphabet = "digits"
    """Characters that are encrypted, among themselves."""
    digits: int = 0
    """Digits of encrypted whole numbers, which are padded with leading zeros."""
    others: Literal["refuse", "keep"] = "refuse"
    """What to do about characters that are not in the alphabet; keep: they stay where they are."""
    tweak: str = ""
    """Makes the same value another one, with the same key."""

    def __post_init__(self) -> None:
        needed, optional = (STEPS | MASKS)[self.step]
        names, defaults = self.__struct_fields__[1:], self.__struct_defaults__
        usual = zip(names, defaults, strict=True)
        given = {name for name, default in usual if getattr(self, name) != default}
        for name in needed:
            if name not in given:
                raise ValueError(f"{self.step} needs {name}=...")
        if others := given.difference(needed, optional):
            raise ValueError(f"{self.step} has no {min(others)}")

    @property
    def is_mask(self) -> bool:
        return self.step in MASKS

    @property
    def key_name(self) -> str:
        """Return the name of the key that the step needs; empty without one."""
        return self.key if self.is_mask and "key" in MASKS[self.step][1] else ""


class MaskingKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a key is found, so that parent and workers each look there themselves."""

    name: str
    """What steps call it, and manifests; never the key."""
    kind: Literal["environment", "file", "keyring"]
    place: str
    """The variable, the absolute path of the file, or `SERVICE/USER` in a keyring."""
    proof: str = ""
    """Shows whether a key is the same, and not the key; empty until the run begins."""


class TransformOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requested steps on the rows of one output."""

    steps: tuple[Step, ...] = ()
    keys: tuple[MaskingKey, ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys that masks need, each once, in the order of the steps."""
        return tuple(dict.fromkeys(filter(None, (step.key_name for step in self.steps))))

    @property
    def masked_columns(self) -> tuple[str, ...]:
        """Names of the columns that are masked, as they were typed."""
        return tuple(step.column for step in self.steps if step.is_mask)


class Masked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a column was masked, as a manifest says it."""

    method: str
    """Its name in `--mask`; `derived`: computed from masked columns."""
    detail: str = ""
    """The options of the method, without any value of the column."""
    key_name: str = ""
    key_proof: str = ""


class OutputColumn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column that comes out, and where it comes from."""

    name: str
    output_type: str
    """The Arrow type."""
    inputs: tuple[str, ...]
    """The columns that went in and that it depends on; none for a constant."""
    source: str = ""
    """The column that went in and that this one is, changed or not; empty for a new one."""
    changes: tuple[str, ...] = ()
    """The requested changes in words, without masks; empty if its values are unchanged."""
    masked: Masked | None = None
    """The last mask; None without a mask."""
    unmasked_inputs: tuple[str, ...] = ()
    """Columns that some step masks, and that this one got clear values of before that step."""
