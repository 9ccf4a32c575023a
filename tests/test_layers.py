"""The house's floors: imports point down only, leaves stand alone, drivers stay in their rooms."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("unloader", "partition_planner", "writers", "numa")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

THIRD_PARTY_OF_LEAVES = {
    "partition_planner": set(),
    "numa": set(),
    "writers": {"pyarrow", "zstandard", "xxhash", "isal", "zlib_ng", "crc32c"},
}
DRIVERS = {
    "duckdb": "duckdb",
    "asyncpg": "postgres",
    "sqlite3": "sqlite",
    "adbc_driver_sqlite": "sqlite",
    "adbc_driver_manager": "sqlite",
    "oracledb": "oracle",
}
"""Driver to the prefix of the modules in `unloader/sources` that may import it."""

FLOORS = (
    {"unloader.cli", "unloader.__main__"},
    {"unloader.demo"},
    {"unloader.api"},
    {
        "unloader.run",
        "unloader.codecs",
        "unloader.manifest",
        "unloader.resolve",
        "unloader.worker",
    },
    {"unloader.placement"},
    {"unloader.storage"},
    {"unloader.sources"},
    {"unloader.request"},
    {
        "unloader.model",
        "unloader.errors",
        "unloader.events",
        "unloader.json_reading",
        "unloader.redaction",
    },
)
"""Rooms of `unloader` from the top floor down; each imports its own floor and those below."""


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """Yield the dotted name of everything a module imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module


def floor_of(module: str) -> int | None:
    """Return the floor a module of `unloader` is on, 0 being the top."""
    for number, floor in enumerate(FLOORS):
        if any(module == name or module.startswith(name + ".") for name in floor):
            return number
    return None


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    """A module imports only what its floor may: leaves no neighbour, nobody a floor above."""
    module = name_of(path)
    package = module.partition(".")[0]
    for imported in imports_of(path):
        top = imported.partition(".")[0]
        if package in THIRD_PARTY_OF_LEAVES:
            allowed = {package, *THIRD_PARTY_OF_LEAVES[package], *sys.stdlib_module_names}
            assert top in allowed, f"{module} imports {imported}"
        elif top == "unloader" and imported != "unloader" and module != "unloader":
            mine, theirs = floor_of(module), floor_of(imported)
            assert mine is not None, f"{module} is on no floor: put it on one"
            assert theirs is not None, f"{imported} is on no floor: put it on one"
            assert theirs >= mine, f"{module} imports {imported} from above"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_libraries_stay_in_their_rooms(path: Path) -> None:
    """click and rich are for the CLI, pyarrow for writers and sources, a driver for its source."""
    module = name_of(path)
    for imported in imports_of(path):
        top = imported.partition(".")[0]
        if top in ("click", "rich"):
            assert module.startswith("unloader.cli"), f"{module} imports {imported}"
        if top == "pyarrow":
            assert module.startswith(("writers", "unloader.sources.")), module
        if top in DRIVERS:
            assert module.startswith(f"unloader.sources.{DRIVERS[top]}"), f"{module}: {imported}"


def test_package_root_imports_nothing() -> None:
    """`import unloader` costs nothing: it holds a docstring and the version."""
    assert list(imports_of(ROOT / "unloader" / "__init__.py")) == []
