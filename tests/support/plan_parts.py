"""Plans whose parts are run one by one, and put together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from processes import command


def planned(source: str, to: Path, *options: str, env: dict[str, str] | None = None) -> str:
    """Make a plan for a directory; return its file."""
    file = to.with_name("plan.json")
    command.run(
        "plan", source, "--table", "t", "--to", str(to), "--unit-bytes", "1MiB",
        "--output", str(file), "--quiet", *options, env=env,
    )  # fmt: skip
    return str(file)


def run_part(plan: str, part: str, *options: str, env: dict[str, str] | None = None) -> None:
    """Run one part of a plan."""
    command.run("run", plan, "--part", part, "--progress", "none", *options, env=env)


def contents(*places: Path, pattern: str = "*") -> dict[str, bytes]:
    """Return the files of some directories by name, without their manifests."""
    return {
        path.name: path.read_bytes()
        for place in places
        for path in place.glob(pattern)
        if path.is_file() and path.name != "_manifest.json"
    }


def merged(to: Path) -> dict[str, Any]:
    """Merge the parts; return the manifest, as it was printed and as it is there."""
    printed = json.loads(command.run("merge", str(to), "--json"))
    manifest = command.manifest_of(to)
    assert printed == manifest
    return manifest
