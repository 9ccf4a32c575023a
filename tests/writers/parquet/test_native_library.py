"""The library that encodes pages: what is written without it, and the memory of its pages."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from encoders.parquet_files import reference_rows, spec

from writers.errors import FormatError
from writers.model import ParquetFormat
from writers.parquet.encoders import why_not_native
from writers.parquet.native import library
from writers.parquet.native.columns import Encoding
from writers.parquet.native.file import prepared
from writers.parquet.native.pages import Page, PageEncoder
from writers.parquet.writer import ParquetWriter

if library.OVERRIDE in os.environ:
    pytest.skip("another build of the library is under test", allow_module_level=True)


def test_without_the_library_files_are_arrows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written all the same; who asks for the native encoder is told what is missing."""
    monkeypatch.setenv(library.OVERRIDE, str(tmp_path / "none.so"))
    library.library.cache_clear()
    try:
        rows = reference_rows(100)
        writer = ParquetWriter(spec(tmp_path), rows.schema, "t")
        writer.write(rows.to_batches()[0])
        (file,) = writer.close()
        assert file.rows == 100
        with pytest.raises(FormatError, match=r"cannot be loaded.*Next: .*--encoder plain"):
            ParquetWriter(spec(tmp_path, encoder="native"), rows.schema, "u")
    finally:
        library.library.cache_clear()


@pytest.mark.skipif(why_not_native() is not None, reason=f"no native library: {why_not_native()}")
def test_pages_that_are_held_keep_their_memory_and_others_give_it_back() -> None:
    """Neither more pages nor the end of their encoder touch what somebody holds."""

    def pages_of(first: int) -> list[Page]:
        batch = pa.RecordBatch.from_pydict({"k": pa.array(range(first, first + 600_000))})
        common = prepared(batch.schema, ParquetFormat())
        assert common is not None
        encoder = PageEncoder(common.forms, [Encoding.PLAIN], page_bytes=1 << 20, bounds=True)
        return [*encoder.append(batch), *encoder.finish()]

    held = pages_of(0)
    content = [page.data.to_pybytes() for page in held]
    places = {page.data.address for page in held}
    others = pages_of(10**12)
    assert [page.data.to_pybytes() for page in held] == content
    assert not places & {page.data.address for page in others}
    del held
    assert {page.data.address for page in pages_of(10**15)} <= places
    assert others[-1].data.to_pybytes()[-8:] == (10**12 + 599_999).to_bytes(8, "little")
