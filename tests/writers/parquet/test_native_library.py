"""The library that encodes pages: what is written without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from encoders.parquet_files import reference_rows, spec

from writers.errors import FormatError
from writers.parquet.native import library
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
