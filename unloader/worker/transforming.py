"""A writer that changes rows before another one writes them."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from unloader.transforms.masking_keys import masking_keys
from unloader.transforms.transformer import Together, Transformer
from writers.content.sums import ColumnSums

if TYPE_CHECKING:
    from unloader.transforms.model import TransformOptions
    from writers.base import Writer
    from writers.large_rows import LargeRow
    from writers.model import ContentSums, StageSeconds, WrittenFile


class _Closing(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closing)

_MOST_KEPT = 4
"""Things without work. A session of DuckDB takes a few MB while it does nothing."""


class Kept(Generic[C]):
    """What a unit leaves to later ones; the last used one comes last.

    To check expressions and to open a session for them takes longer than the rows of a small unit.
    """

    def __init__(self) -> None:
        self._by_key: dict[object, C] = {}

    def take(self, key: object) -> C | None:
        """Return what was left under a key; it is the caller's now."""
        return self._by_key.pop(key, None)

    def keep(self, key: object, what: C) -> None:
        """Leave something under a key, or close it if something is there already."""
        if key in self._by_key:
            what.close()
            return
        for old in list(self._by_key)[: max(0, len(self._by_key) - _MOST_KEPT + 1)]:
            self._by_key.pop(old).close()
        self._by_key[key] = what


_TRANSFORMERS: Kept[Transformer] = Kept()
"""By the transform and its columns."""


class TransformedWriter:
    """Applies a transform to the rows of one work unit; a `writers.base.Writer`.

    Batches are held until there are enough of them to be worked on together: a step costs the same
    for few rows as for some thousands. Order is kept. Memory holds `TOGETHER_BYTES` and one batch
    more, beside their results.
    """

    def __init__(
        self,
        options: TransformOptions,
        schema: Any,
        open_writer: Callable[[Any], Writer],
        *,
        checksums: bool = False,
    ) -> None:
        """Check the transform against the columns, read its keys, and open the writer.

        Raises:
            UsageError, ConfigError: As `Transformer`; a key is not the one of the run.
        """
        self._kept_as = (repr(options), schema.serialize().to_pybytes())
        self._transformer = _TRANSFORMERS.take(self._kept_as) or Transformer(
            options, schema, masking_keys(options.keys)
        )
        try:
            self._writer = open_writer(self._transformer.schema)
        except BaseException:
            self._transformer.close()
            raise
        self._is_kept = False
        """It is another unit's now."""
        self._held = Together()
        self._seconds = 0.0
        self._sums = ColumnSums(self._transformer.schema) if checksums else None

    def write(self, batch: Any) -> None:
        if self._held.add(batch):
            self._flush()

    def write_large(self, row: LargeRow) -> None:
        """Write a row with values of any size, after the earlier rows.

        Raises:
            OutputFailed: A step would have to look at such a value.
        """
        self._flush()
        changed = self._transformer.apply_large(row)
        if changed is None:
            return
        if not changed.values:
            self._write(changed.row)
            return
        self._writer.write_large(changed if self._sums is None else self._sums.hashed(changed))

    def close(self) -> tuple[WrittenFile, ...]:
        self._flush()
        _TRANSFORMERS.keep(self._kept_as, self._transformer)
        self._is_kept = True
        return self._writer.close()

    def abort(self) -> None:
        self._held.take()
        if not self._is_kept:
            self._transformer.close()
        self._writer.abort()

    @property
    def bytes_written(self) -> int:
        return self._writer.bytes_written

    @property
    def stages(self) -> StageSeconds:
        """As of the writer; the transform is a part of encoding."""
        known = self._writer.stages
        return replace(known, encode_s=known.encode_s + self._seconds)

    @property
    def content(self) -> ContentSums | None:
        return None if self._sums is None else self._sums.result()

    def _flush(self) -> None:
        began = perf_counter()
        changed = list(self._transformer.apply(self._held.take()))
        self._seconds += perf_counter() - began
        for batch in changed:
            self._write(batch)

    def _write(self, batch: Any) -> None:
        if self._sums is not None:
            self._sums.add(batch.columns, batch.num_rows)
        self._writer.write(batch)
