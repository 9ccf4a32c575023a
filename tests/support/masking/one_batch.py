"""A transform applied to one batch at a time."""

from __future__ import annotations

import pyarrow as pa

from unloader.transforms.transformer import Transformer


class OneBatch(Transformer):
    """A transformer that returns one batch for each batch, perhaps without rows."""

    def one(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what becomes of the rows of a batch."""
        found = pa.Table.from_batches(self.apply([batch]), self.schema).combine_chunks()
        batches = found.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self.schema)
