"""Other people's Oracle clients: their download, start, and output.

Values that a driver cannot hold, or gets wrong with any server, are in `held` and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from oracle_server.data.moments import in_utc
from oracle_server.model import DaySecond, Moment, Type, YearMonth

SOURCES = Path(__file__).parent
_JAR = "com.oracle.database.jdbc:ojdbc11:23.26.0.0.0"
_JAR_PATH = "com/oracle/database/jdbc/ojdbc11/23.26.0.0.0/ojdbc11-23.26.0.0.0.jar"
_JAR_SHA256 = "ef295bf01374dac7d791b3bc6526d10e8910ecac4645a95a3ca0c01cfc5c21d0"
_MAVEN_GET = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"
_MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_SECONDS = 170
_RUN_SECONDS = 300

UNREADABLE = "not compared: the driver cannot read it"


class Missing(Exception):
    """A client cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program that reads from Oracle."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def run(self, *arguments: str, password: str, statements: tuple[str, ...]) -> list[Any]:
        """Run statements and return the program's output, line by line."""
        done = subprocess.run(
            [*self.command, *arguments],
            input="".join(f"{statement}\n" for statement in statements).encode(),
            capture_output=True,
            check=False,
            timeout=_RUN_SECONDS,
            env={
                **os.environ,
                **dict(self.environment),
                "WITNESS_PASSWORD": password,
                # Drivers without a session time zone take the machine's.
                "TZ": "UTC",
            },
        )
        assert done.returncode == 0, done.stderr.decode()
        return [json.loads(line) for line in done.stdout.decode().splitlines()]


def fetched(name: str) -> Client:
    """Return a client, fetched and built if it is not in the cache.

    Raises:
        Missing: A tool is not here, or the registry does not answer.
    """
    return _MAKERS[name]()


def mirror_command() -> tuple[str, ...]:
    """Return the command of the Mirror of seerdb, which serves Oracle clients from PostgreSQL.

    Raises:
        Missing: pip cannot get it.
    """
    # Not its own script: that names the interpreter's place from before the directory was renamed.
    return _environment("mirror"), "-m", "seerdb.server"


def pandas_python() -> str:
    """Return the Python of an environment that has pandas, numpy and pyarrow.

    Raises:
        Missing: pip cannot get them.
    """
    return _environment("pandas_reader")


def _environment(folder: str) -> str:
    """Return the Python of an environment with what a folder's requirements.txt names."""
    requirements = SOURCES / folder / "requirements.txt"

    def make(directory: Path) -> None:
        _fetch([sys.executable, "-m", "venv", "."], directory)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        _fetch([str(directory / "bin/python"), *install, "-r", str(requirements)], directory)

    name = f"{folder}-{sys.version_info.major}.{sys.version_info.minor}"
    return str(_made(name, (requirements,), make) / "bin/python")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "unloader-witnesses"


def _made(name: str, inputs: tuple[Path, ...], make: Callable[[Path], None]) -> Path:
    """Return a directory of the cache, made by `make` unless it is there already.

    It belongs to these inputs: when they change there is another one. It appears whole or not at
    all, so a run that was interrupted leaves nothing that looks finished.
    """
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in inputs)).hexdigest()
    directory = _cache() / f"{name}-{digest[:16]}"
    if not directory.exists():
        _cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_cache(), prefix=".making-") as started:
            work = Path(started) / "work"
            work.mkdir()
            make(work)
            try:
                work.rename(directory)
            except OSError:
                if not directory.exists():
                    raise
    return directory


def _tool(*names: str) -> list[str]:
    found = [shutil.which(name) for name in names]
    absent = [name for name, path in zip(names, found, strict=True) if path is None]
    if absent:
        raise Missing(f"{' and '.join(absent)} not on PATH")
    return [path for path in found if path is not None]


def _fetch(command: list[str], directory: Path, **environment: str) -> None:
    """Run a tool that may need its registry."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=_FETCH_SECONDS,
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{Path(command[0]).name} took over {_FETCH_SECONDS} s") from error
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines() or [str(done.returncode)]
        reason = next((line for line in said if "error" in line.lower()), said[-1])
        raise Missing(f"{Path(command[0]).name} failed: {reason}")


def _node() -> Client:
    node, npm = _tool("node", "npm")
    inputs = (SOURCES / "node/package.json", SOURCES / "node/package-lock.json")

    def make(directory: Path) -> None:
        for path in inputs:
            shutil.copy(path, directory)
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1"]
        _fetch([npm, "ci", *options], directory)

    modules = _made("node", inputs, make) / "node_modules"
    return Client(
        name="node",
        command=(node, str(SOURCES / "node/witness.js")),
        environment=(("NODE_PATH", str(modules)),),
    )


def _java() -> Client:
    java, javac, maven = _tool("java", "javac", "mvn")
    source = SOURCES / "java/Witness.java"

    def make(directory: Path) -> None:
        repository = f"-Dmaven.repo.local={_cache() / 'maven'}"
        options = ["-q", "-B", repository, f"-Dartifact={_JAR}", "-Dtransitive=false"]
        kept = _cache() / "maven" / _JAR_PATH
        if not kept.exists():
            _fetch([maven, _MAVEN_GET, *options], directory)
        digest = hashlib.sha256(kept.read_bytes()).hexdigest()
        assert digest == _JAR_SHA256, f"{kept} is another file: SHA-256 {digest}"
        jar = shutil.copy(kept, directory / "ojdbc11.jar")
        _fetch([javac, "-cp", str(jar), "-d", ".", str(source)], directory)

    classes = _made("java", (source,), make)
    # It lives for a second: no second compiler, and no threads that collect its garbage.
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    path = f"{classes}:{classes / 'ojdbc11.jar'}"
    return Client(name="java", command=(java, *options, "-cp", path, "Witness"))


def java_reader(name: str) -> tuple[str, ...]:
    """Return the command of a program over the reference implementations of Iceberg and Parquet.

    Args:
        name: `ReadTable`, `MaintainTable` or `ReadParquet`.

    Raises:
        Missing: It cannot be had here.
    """
    java, javac, maven = _tool("java", "javac", "mvn")
    programs = ("ReadTable.java", "MaintainTable.java", "ReadParquet.java")
    inputs = tuple(SOURCES / "java_readers" / each for each in ("pom.xml", *programs))

    def make(directory: Path) -> None:
        for path in inputs:
            shutil.copy(path, directory)
        options = ["-q", "-B", f"-Dmaven.repo.local={_cache() / 'maven'}", "-DoutputDirectory=lib"]
        _fetch([maven, _MAVEN_COPY, *options], directory)
        _fetch([javac, "-cp", "lib/*", *programs], directory)

    made = _made("iceberg", inputs, make)
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return (java, *options, "-cp", f"{made / 'lib'}/*:{made}", name)


def _go() -> Client:
    (go,) = _tool("go")
    inputs = tuple(SOURCES / "go" / name for name in ("go.mod", "go.sum", "witness.go"))

    def make(directory: Path) -> None:
        for path in inputs:
            shutil.copy(path, directory)
        # Read-only modules would be in the way of anyone who clears the cache.
        _fetch(
            [go, "build", "-modcacherw", "-o", "witness", "."],
            directory,
            GOMODCACHE=str(_cache() / "go-modules"),
            GOCACHE=str(_cache() / "go-build"),
            GOTOOLCHAIN="local",
        )

    return Client(name="go", command=(str(_made("go", inputs, make) / "witness"),))


_MAKERS: dict[str, Callable[[], Client]] = {"node": _node, "java": _java, "go": _go}


def read(kind: Type, text: str | None) -> Any:
    """Return the value of a text, in a form that can be compared with `held`."""
    if text is None:
        return None
    if kind.name in ("NUMBER", "FLOAT"):
        return Decimal(text)
    if kind.name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return _image(kind, float(text))
    return text


def held(client: str, kind: Type, value: Any) -> Any:
    """Return a value as a client reads it, with the losses listed here."""
    if value is None:
        return None
    if isinstance(value, Moment):
        return _moment_text(_moment(client, kind, value))
    if isinstance(value, (YearMonth, DaySecond)):
        return _interval_text(client, value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return _image(kind, value)
    if isinstance(value, str):
        return value
    if client == "go" and 0 < value < Decimal("1E-128"):
        # It takes their first byte, the same as zero's, for the whole number.
        return UNREADABLE
    return Decimal(value)


def _image(kind: Type, value: float) -> bytes:
    return struct.pack(">f" if kind.name == "BINARY_FLOAT" else ">d", value)


def _moment(client: str, kind: Type, value: Moment) -> Moment:
    if client != "node":
        return value
    # It converts all these types to an instant in milliseconds.
    if value.zone is not None:
        value = in_utc(value)._replace(zone="+00:00")
    elif kind.name in ("DATE", "TIMESTAMP") and 0 <= value.year < 100:
        # JavaScript moves such years to the twentieth century; the driver lets it.
        value = value._replace(year=value.year + 1900)
    return value._replace(nanos=value.nanos - value.nanos % 1_000_000)


def _moment_text(value: Moment) -> str:
    sign = "-" if value.year < 0 else ""
    day = f"{sign}{abs(value.year):04d}-{value.month:02d}-{value.day:02d}"
    clock = f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}.{value.nanos:09d}"
    return f"{day} {clock}" + (f" {value.zone}" if value.zone else "")


def _interval_text(client: str, value: YearMonth | DaySecond) -> str:
    (amount,) = value
    if client == "go":
        if amount < 0:
            # It gets the signs of the parts wrong.
            return UNREADABLE
        if isinstance(value, DaySecond):
            amount -= amount % 1_000
    return str(amount)
