"""The native library: found where it was built, refused when it is not the right one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from writers.native.library import ABI_VERSION, Unusable, find, load


def test_a_file_that_is_no_library_is_not_loaded(tmp_path: Path) -> None:
    """The loader's own words are in the reason."""
    file = tmp_path / "broken.so"
    file.write_bytes(b"no library")
    with pytest.raises(Unusable, match="cannot be loaded"):
        load(file)


@pytest.mark.parametrize("version", [None, ABI_VERSION - 1, ABI_VERSION + 1])
def test_a_library_of_another_version_is_not_used(tmp_path: Path, version: int | None) -> None:
    """One left from an older build, or of a newer package, or something else altogether."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to make a library of another version with")
    source = tmp_path / "stale.c"
    name = "unrelated" if version is None else "unloader_abi_version"
    source.write_text(f"unsigned {name}(void) {{ return {version or 0}; }}\n")
    library = tmp_path / "stale.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    with pytest.raises(Unusable, match=rf"stale\.so .* version {version}, .* needs {ABI_VERSION}"):
        load(library)


def test_both_sides_have_the_same_version() -> None:
    """The number in the sources is the one that is asked for, so a fresh build is usable."""
    source = Path(__file__).parents[3] / "writers/native/src/encoder.cpp"
    found = re.search(r"ABI_VERSION = (\d+);", source.read_text("utf-8"))
    assert found is not None
    assert int(found[1]) == ABI_VERSION


def test_the_library_is_the_one_beside_the_package() -> None:
    """It is found by the name of its module, without being loaded."""
    path = find()
    assert path is not None
    assert path.name.startswith("_encoder.")
    assert load(path).unloader_abi_version() == ABI_VERSION
