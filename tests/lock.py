"""Writes `constraints.txt`: the versions of all packages with which the suite has run.

Run it in the environment of a suite that passed: `.venv-test/bin/python tests/lock.py`. It reads
setup.cfg and the installed packages, asks no registry, and writes names and versions alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "constraints.txt"

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")


def direct() -> set[tuple[str, frozenset[str]]]:
    """Return names and extras of the requirements in setup.cfg, with its extras."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    asked = [config["options"]["install_requires"], config["options.extras_require"]["test"]]
    lines = "\n".join(asked).splitlines()
    return {_named(line) for line in lines if _NAME.match(line)}


def needed() -> dict[str, str]:
    """Return the version of each installed distribution that those lead to, by its name."""
    found: dict[str, str] = {}
    waiting = list(direct())
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            known = distribution(name)
        except PackageNotFoundError:
            continue  # Of another system or version of Python.
        found[name] = known.version
        waiting += _below(known.requires or (), extras)
    return dict(sorted(found.items()))


def _below(
    requires: list[str] | tuple[()], extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for requirement in requires:
        wanted, _, marker = requirement.partition(";")
        asked = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if asked is None or asked[1] in extras:
            yield _named(wanted)


def _named(requirement: str) -> tuple[str, frozenset[str]]:
    """Return the name, as all write it, and the extras of a requirement."""
    match = _NAME.match(requirement)
    assert match is not None, requirement
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    return name, frozenset(each.strip() for each in (match[2] or "").split(",") if each.strip())


def lock() -> str:
    """Return the text of the file."""
    versions = needed()
    lines = [
        f"# Versions that the test suite has run with, on Python {sys.version.split()[0]}.",
        "# Use them: pip install -c constraints.txt 'unloader[all]'",
        "# Made by tests/lock.py.",
        *(f"{name}=={version}" for name, version in versions.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    LOCK.write_text(lock(), encoding="utf-8")
