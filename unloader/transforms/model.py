"""Steps on rows between reading and writing, as plain data.

Each step works on the columns that the steps before it have left. The
first field of a step names its column or columns, and only the step classes have that field.

Steps contain the names of keys, and no keys. A `MaskingKey` has the place of a key.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Alphabet = Literal[
    "digits", "lower", "upper", "letters", "digits-lower", "digits-upper", "alphanumeric"
]
"""alphanumeric: digits and letters of both cases."""


Method = Literal[
    "hmac", "tokenize", "redact", "truncate", "truncate-date", "shift-date", "ff1", "derived"
]
"""How a column is masked, as `--mask` says it; derived: computed from masked columns."""

DEFAULT_KEY = "default"
"""Name of the key of a mask that names none."""


class _Step(Struct, frozen=True, forbid_unknown_fields=True, tag_field="step"):
    """A step has its kind in JSON."""


class KeepColumns(_Step, frozen=True, kw_only=True, tag="keep"):
    """Keeps these columns, in this order, and no others."""

    keep: tuple[str, ...]


class RenameColumns(_Step, frozen=True, kw_only=True, tag="rename"):
    """Gives columns other names in one step, so that two columns may exchange their names."""

    rename: tuple[tuple[str, str], ...]
    """The name of each, and its new one."""


class CastColumn(_Step, frozen=True, kw_only=True, tag="cast"):
    """Gives a column another type; a value that it cannot hold exactly stops the run."""

    cast: str
    to: str
    """A type as `columns` prints it, such as int64, decimal(12,2), date or timestamp[us, UTC]."""


class ConstantColumn(_Step, frozen=True, kw_only=True, tag="constant"):
    """Sets a column to one value in every row; one that is not there is added at the end."""

    constant: str
    value: str | None
    """The value's text; None is NULL."""
    type: str = "string"


class ComputeColumn(_Step, frozen=True, kw_only=True, tag="compute"):
    """Sets a column to an SQL expression over the row; one that is not there is added at the end.

    The expression is DuckDB's SQL. A column is named in double quotes where its name is not plain.
    """

    compute: str
    sql: str


class FilterRows(_Step, frozen=True, kw_only=True, tag="filter"):
    """Keeps the rows for which an SQL condition over the row is true."""

    filter: str


class HashColumn(_Step, frozen=True, kw_only=True, tag="hmac"):
    """Masks values by HMAC-SHA-256 of their canonical text."""

    hmac: str
    key: str = DEFAULT_KEY
    encoding: Literal["hex", "base64"] = "hex"
    length: int = 0
    """Characters that are kept; 0 is all."""


class TokenizeColumn(_Step, frozen=True, kw_only=True, tag="tokenize"):
    """Masks values by tokens: the same for the same value, key and domain, wherever they stand."""

    tokenize: str
    key: str = DEFAULT_KEY
    form: Literal["text", "uuid", "integer"] = "text"
    """text: 128 bits in 32 hexadecimal digits; uuid: 122 bits; integer: 63 bits, in an int64."""
    domain: str = ""
    """What kind of thing the values name: a customer 42 and an order 42 have different tokens."""


class RedactColumn(_Step, frozen=True, kw_only=True, tag="redact"):
    """Masks values by one constant, NULLs included; the column keeps its type."""

    redact: str
    value: str | None = None
    """The constant's text; None is NULL."""


class TruncateColumn(_Step, frozen=True, kw_only=True, tag="truncate"):
    """Masks texts by keeping their first characters."""

    truncate: str
    characters: int


class TruncateDates(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="step",
    tag="truncate-date",
):
    """Masks dates and timestamps by the first moment of their month or year."""

    truncate_date: str
    to: Literal["month", "year"]


class ShiftDates(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="step",
    tag="shift-date",
):
    """Masks dates and timestamps by a shift in days, the same for all rows of one subject."""

    shift_date: str
    by: str
    """The column that names the subject. A date without a subject becomes NULL."""
    days: int
    """The largest shift, forward or back; no shift is 0."""
    key: str = DEFAULT_KEY
    domain: str = ""
    """What kind of thing the subjects are."""


class EncryptColumn(_Step, frozen=True, kw_only=True, tag="ff1"):
    """Masks texts and whole numbers by FF1 of NIST SP 800-38G; the format stays."""

    ff1: str
    key: str = DEFAULT_KEY
    """A key of 16, 24 or 32 bytes."""
    alphabet: Alphabet = "digits"
    """Characters that are encrypted, among themselves."""
    digits: int = 0
    """Digits of encrypted whole numbers, which are padded with leading zeros."""
    others: Literal["refuse", "keep"] = "refuse"
    """What to do about characters that are not in the alphabet; keep: they stay where they are."""
    tweak: str = ""
    """Makes the same value another one, with the same key."""


Mask = (
    HashColumn
    | TokenizeColumn
    | RedactColumn
    | TruncateColumn
    | TruncateDates
    | ShiftDates
    | EncryptColumn
)
Step = KeepColumns | RenameColumns | CastColumn | ConstantColumn | ComputeColumn | FilterRows | Mask


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
        named = (getattr(step, "key", "") for step in self.steps)
        return tuple(dict.fromkeys(filter(None, named)))

    @property
    def masked_columns(self) -> tuple[str, ...]:
        """Names of the columns that are masked, as they were typed."""
        masks = (step for step in self.steps if isinstance(step, Mask))
        return tuple(str(getattr(step, step.__struct_fields__[0])) for step in masks)


class Masked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a column was masked, as a manifest says it."""

    method: Method
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
