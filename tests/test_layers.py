"""The house's rooms: imports point down only, in no circle, and libraries stay where they belong."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "support"
PACKAGES = ("unloader", "partition_planner", "writers", "numa")

THIRD_PARTY_OF_LEAVES = {
    "partition_planner": {"msgspec"},
    "numa": {"msgspec"},
    "writers": {"msgspec", "pyarrow", "zstandard", "xxhash", "isal", "zlib_ng", "crc32c", "pyrage"}
    | {"obstore", "boto3", "botocore"},
}
DRIVERS = {
    "duckdb": ("duckdb",),
    "psycopg": ("postgres",),
    "pymysql": ("mysql",),
    "sqlite3": ("sqlite",),
    "adbc_driver_sqlite": ("sqlite",),
    "adbc_driver_manager": ("sqlite", "adbc"),
    "arrow_odbc": ("odbc",),
    "oracledb": ("oracle",),
}
"""Driver to the prefixes of the modules in `unloader/sources` that may import it."""

FLOORS = {
    "unloader": (
        {"unloader.__main__"},
        {"unloader.cli"},
        {"unloader.cli.commands"},
        {"unloader.cli.group"},
        {"unloader.cli.options"},
        {"unloader.cli.mistakes", "unloader.cli.watching"},
        {"unloader.cli.display"},
        {"unloader.cli.signals", "unloader.cli.streams"},
        {"unloader.tuning.preflight_measuring"},
        {"unloader.tuning.live_sweep"},
        {"unloader.operations"},
        {"unloader.api"},
        {
            "unloader.tuning.report_charts",
            "unloader.tuning.report_page",
            "unloader.tuning.report_records",
        },
        {"unloader.run"},
        {"unloader.checking", "unloader.retention", "unloader.tuning.sizing_basis"},
        {"unloader.status"},
        {"unloader.lakehouse.lake_runs", "unloader.merging", "unloader.verification"},
        {"unloader.tuning.ceilings"},
        {"unloader.manifest"},
        {"unloader.resolve", "unloader.tuning.codec_choice", "unloader.tuning.measuring_process"},
        {
            "unloader.tuning.measuring_tasks",
            "unloader.tuning.machine_load",
            "unloader.tuning.sweep_document",
        },
        {"unloader.engine"},
        {"unloader.worker"},
        {"unloader.placement"},
        {"unloader.storage", "unloader.transforms"},
        {"unloader.lakehouse"},
        {"unloader.sources"},
        {"unloader.selection"},
        {"unloader.request"},
        {"unloader.secrets"},
        {"unloader.tuning"},
        {"unloader.model", "unloader.errors", "unloader.events", "unloader.redaction"},
        {"unloader.request.option"},
        {"unloader.request.value_types"},
        {"unloader.request.settings"},
        {"unloader.nouns", "unloader.transforms.model"},
    ),
    "writers": (
        {"writers.content.reading"},
        {"writers.codecs.measuring", "writers.files.merge", "writers.files.read_back"},
        {"writers.registry"},
        {"writers.content", "writers.lob_files"},
        {"writers.parquet", "writers.text", "writers.native", "writers.held_values"},
        {"writers.files"},
        {"writers.objects"},
        {"writers.codecs", "writers.encryption"},
        {"writers.large_rows", "writers.model"},
        {"writers.built_library", "writers.schema"},
        {"writers.errors", "writers.schema", "writers.cpu_delay"},
    ),
    "numa": (
        {"numa.pool"},
        {"numa.processes"},
        {"numa.affinity", "numa.placement", "numa.residence"},
        {"numa.topology"},
        {"numa.devices", "numa.recording"},
        {"numa.kernel_files"},
        {"numa.model"},
    ),
}
"""Rooms of a package from the top floor down; each imports its own floor and those below."""


@cache
def modules(base: Path, *packages: str) -> Mapping[str, Path]:
    """Return the modules of packages that lie in `base`, by their dotted names."""
    found = {}
    for path in (path for package in packages for path in (base / package).rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Return what a module imports, wherever the import stands; `from a import b` gives `a.b`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def edges(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which of the known modules each of them imports."""
    found = {}
    for module, path in known.items():
        named = imports_of(path)
        either = {name if name in known else name.rpartition(".")[0] for name in named}
        found[module] = (either & known.keys()) - {module}
    return found


def cycles(graph: Mapping[str, set[str]]) -> Iterator[frozenset[str]]:
    """Yield the sets of modules that reach each other."""
    reached = {module: _reached(graph, module) for module in graph}
    found = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }
    yield from found


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph[module]
    return found


def room_of(module: str, floors: tuple[set[str], ...]) -> tuple[int, str] | None:
    """Return floor and room of a module: the longest name on the list that it begins with."""
    found = [
        (len(room), number, room)
        for number, floor in enumerate(floors)
        for room in floor
        if module == room or module.startswith(room + ".")
    ]
    return max(found)[1:] if found else None


@pytest.mark.parametrize("package", FLOORS)
def test_every_module_is_in_a_room(package: str) -> None:
    """Each module of a package with floors is on one, and each room on the list exists."""
    floors, known = FLOORS[package], modules(ROOT, package)
    homeless = [name for name in known if name != package and room_of(name, floors) is None]
    assert homeless == [], "put them on a floor"
    rooms = {room for floor in floors for room in floor}
    assert rooms <= known.keys(), "a room on the list is gone"


@pytest.mark.parametrize("package", FLOORS)
def test_imports_point_down(package: str) -> None:
    """A module imports its own floor and those below."""
    floors, upward = FLOORS[package], []
    for module, imported in edges(modules(ROOT, package)).items():
        mine = room_of(module, floors)
        for name in imported:
            theirs = room_of(name, floors)
            if mine is not None and theirs is not None and theirs[0] < mine[0]:
                upward.append(f"{module} imports {name}")
    assert upward == []


@pytest.mark.parametrize("package", THIRD_PARTY_OF_LEAVES)
def test_leaves_stand_alone(package: str) -> None:
    """partition_planner, numa and writers import no neighbour and few libraries."""
    allowed = {package, *THIRD_PARTY_OF_LEAVES[package], *sys.stdlib_module_names}
    for module, path in modules(ROOT, package).items():
        foreign = {name.partition(".")[0] for name in imports_of(path)} - allowed
        assert foreign == set(), f"{module} imports {foreign}"


def test_no_import_cycle() -> None:
    """No modules import each other in a circle, imports in functions and for types included."""
    assert set(cycles(edges(modules(ROOT, *PACKAGES)))) == set()


def test_no_import_cycle_in_the_support_of_tests() -> None:
    """The programs and servers that tests use have no import cycle between folders."""
    rooms = sorted(path.name for path in SUPPORT.iterdir() if path.is_dir())
    assert "oracle_server" in rooms
    assert set(cycles(edges(modules(SUPPORT, *rooms)))) == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_libraries_stay_in_their_rooms(package: str) -> None:
    """click and rich are for the CLI, pyarrow for writers and sources, a driver for its source."""
    for module, path in modules(ROOT, package).items():
        for imported in imports_of(path):
            top = imported.partition(".")[0]
            if top in ("click", "rich"):
                assert module.startswith("unloader.cli"), f"{module} imports {imported}"
            if top == "psutil":
                assert module == "unloader.tuning.machine_load", f"{module} imports {imported}"
            if top in ("prometheus_client", "opentelemetry"):
                assert module.startswith("unloader.operations"), f"{module} imports {imported}"
            if top in ("distributed", "dask", "tornado"):
                assert module.startswith("unloader.engine.cluster"), f"{module} imports {imported}"
            if top == "vl_convert":
                assert module == "unloader.tuning.report_charts", f"{module} imports {imported}"
            if top in ("jinja2", "markupsafe"):
                assert module == "unloader.tuning.report_page", f"{module} imports {imported}"
            if top == "pyarrow":
                rooms = ("writers", "unloader.sources.", "unloader.transforms.")
                rooms += ("unloader.lakehouse.",)
                assert module.startswith(rooms), module
            if top in ("pyiceberg", "pyparsing"):
                assert module.startswith("unloader.lakehouse.iceberg_"), f"{module}: {imported}"
            if top == "deltalake":
                assert module == "unloader.lakehouse.delta_tables", f"{module}: {imported}"
            if top == "ffx":
                assert module == "unloader.transforms.masks", module
            rooms = ("unloader.transforms.sql_", "unloader.lakehouse.ducklake_")
            if top == "duckdb" and module.startswith(rooms):
                continue
            if top in DRIVERS:
                rooms = tuple(f"unloader.sources.{each}" for each in DRIVERS[top])
                assert module.startswith(rooms), f"{module}: {imported}"


def test_package_root_imports_nothing() -> None:
    """`import unloader` costs nothing: it holds the version, which is also the writers'."""
    assert imports_of(ROOT / "unloader" / "__init__.py") == {"writers.__version__"}
    assert imports_of(ROOT / "writers" / "__init__.py") == frozenset()


def test_cycles_are_found() -> None:
    """Two circles of modules are two sets, and modules that only lead there are in none."""
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": {"e"}, "e": {"f"}, "f": {"d"}}
    assert set(cycles(graph)) == {frozenset("bc"), frozenset("def")}
