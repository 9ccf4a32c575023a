"""Which rows and columns are read, and in which form."""

from __future__ import annotations

import pickle
from collections import deque
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from partition_planner.model import TableInfo
from unloader.model.source import Snapshot, SourceSpec
from unloader.request.option import READING, Option
from unloader.request.value_types import NUMBER_FORM

Nanoseconds = Literal["string", "timestamp"]

Lossless = bool | Literal["masked", "changed"]
"""Whether a column has the source's values. masked, changed: it has others on purpose."""


class ReadColumn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of the output: how it is read and what becomes of it."""

    name: str
    source_type: str
    expression: str
    """SQL of the select list, without the alias."""
    output_type: str
    """The Arrow type in Parquet, `text` where the database itself renders the value."""
    nullable: bool | None
    lossless: Lossless
    note: str = ""


class Projection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of a run, fixed once by the parent for all workers."""

    columns: tuple[ReadColumn, ...]
    route: Literal["arrow", "encoded"]
    """arrow: record batches; encoded: the source renders the very text asked for."""
    schema: str
    """The Arrow schema of the batches, as `writers.schema.schema_text` writes it; empty on the
    encoded route."""
    outputs: tuple[tuple[int, ...], ...] = ()
    """Which of the columns each output takes, by index; empty where there is one output, of all."""
    filters: tuple[tuple[int, ...], ...] | None = None
    """Which of the columns the filter of each output looks at; None where no output has one."""


_value = partial(
    Option,
    group="Selection",
    commands=READING,
    effect="changes",
    scope="table",
    formats=("parquet",),
)


class ValueOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of values that the usual Arrow types cannot hold.

    `Source.options` names the fields a source knows; others must keep their defaults.
    """

    number_without_precision: Annotated[str, _value(NUMBER_FORM, example="'decimal(38,10)'")] = (
        "string"
    )
    """In Parquet, write a NUMBER without precision as exact text, as a decimal(p,s) that must fit
    every value, or as a double, which may round. Only Oracle."""
    nanoseconds: Annotated[Nanoseconds, _value()] = "string"
    """In Parquet, write timestamps with 7 to 9 digits as exact text, or as nanoseconds, which end
    in 2262. Only Oracle."""
    zone_columns: Annotated[bool, _value()] = False
    """In Parquet, add a column with the zone of each timestamp with time zone. Only Oracle."""


class SampledKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Only rows whose key is in a sample are read; the same keys of every table and source.

    `unloader.sources.statement` defines which keys those are.
    """

    column: str
    """The column that holds the key."""
    share: float
    """Of all keys that there may be, above 0 and below 1."""
    text: str
    """SQL for the key's text; NULL or empty where a row has no key."""
    condition: str
    """SQL that is true for the rows of the sample; empty where readers choose the rows."""


class Extract(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data to read, apart from the cut into units; the same for every worker."""

    source: SourceSpec
    snapshot: Snapshot | None
    table: TableInfo
    query: str | None
    where: str | None
    partitions: tuple[str, ...] = ()
    """Patterns of the partitions asked for; empty is all. They determine the expected rows: the
    units' selectors hold the read partitions."""
    keys: SampledKeys | None = None
    """None is the rows of all keys."""
    limit_rows: int | None = None
    """At most this number of rows is read, in any order; one unit reads them."""
    projection: Projection

    @property
    def is_plain(self) -> bool:
        """Whether a table is read, or its rows for which `where` holds, and nothing else."""
        return not (self.query or self.partitions or self.keys or self.limit_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled as bytes that are made once.

        Every task of a run holds its extract. Where they are read again, one object serves all of
        them, so data derived from it can be kept, too.
        """
        for known, made in tuple(_pickled):  # Agents of several runs may be in one process.
            if known is self:
                return _read_again, (made,)
        made = pickle.dumps(asdict(self), protocol=pickle.HIGHEST_PROTOCOL)
        _pickled.append((self, made))
        return _read_again, (made,)


_FEW = 4
"""The number of extracts whose bytes, or objects, are kept: a run has one for each table."""

_pickled: deque[tuple[Extract, bytes]] = deque(maxlen=_FEW)


@lru_cache(maxsize=_FEW)
def _read_again(made: bytes) -> Extract:
    return Extract(**pickle.loads(made))
