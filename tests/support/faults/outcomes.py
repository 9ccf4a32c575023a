"""What a run has left in its destination: files by content, the manifest without what may differ.

Standard library only: `examples/random_kills.py` uses it beside the tests.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "_manifest.json"
RUN = "_run"
JOURNAL = "journal.jsonl"
RECORD_BEGINS = b'{"event":"publishing"'
"""Of the line of a journal that has the record of a publication."""

MAY_DIFFER = frozenset(
    {
        "run_id",
        "unloader_version",
        "taken_at",
        "attempts",
        "seat",
        "stages",
        "seconds",
        "cpu_seconds",
        "compress_cpu_seconds",
        "rows_per_second",
        "bytes_per_second",
        "peak_rss_bytes",
        "peak_worker_rss_bytes",
        "workers",
        "nodes",
        "warnings",
        "not_measured",
        "settings",
        "to",
        "overwrite",
        "resumed",
        "worker",
        "started_s",
        "failed_attempts",
        "failed_attempts_left_out",
        "samples",
        "parallelism_steps",
        "efficiency",
    }
)
"""Keys of a manifest, anywhere in it, that describe the run and not its files: timings, attempts,
seats, speeds, the run's id, the time of the snapshot, its place and the run that it replaced.
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished run, to be compared with another one of the same rows."""

    files: Mapping[str, str]
    """Name to SHA-256, of everything in the directory but the manifest."""
    manifest: Mapping[str, Any]
    """Without the keys of `MAY_DIFFER`."""

    def differences(self, other: Outcome) -> list[str]:
        """Return in words how another outcome differs; empty if it does not."""
        found = []
        for name in sorted({*self.files, *other.files}):
            if self.files.get(name) != other.files.get(name):
                states = [
                    ("" if name in each.files else "not ") + "there" for each in (self, other)
                ]
                found.append(
                    f"{name} has other bytes" if states[0] == states[1] else f"{name}: {states}"
                )
        return found + list(_differing("manifest", self.manifest, other.manifest))


def outcome_of(destination: Path, *, besides: frozenset[str] = frozenset()) -> Outcome:
    """Return what a finished run has left.

    Args:
        destination: Its directory.
        besides: Further keys of the manifest that may differ.
    """
    names = sorted(entry.name for entry in destination.iterdir() if entry.name != MANIFEST)
    document = json.loads((destination / MANIFEST).read_bytes())
    # Of the whole document, so of what may differ, too; the plan's own is compared.
    document.pop("digest", None)
    return Outcome(
        files={name: sha256(destination / name) for name in names},
        manifest=_without(document, MAY_DIFFER | besides),
    )


def sha256(path: Path) -> str:
    """Return the checksum of a file; of a directory that it is one."""
    if path.is_dir():
        return "a directory"
    with open(path, "rb", buffering=0) as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True, order=True)
class Identity:
    """What tells a written file from one that was written again."""

    inode: int
    mtime_ns: int
    bytes: int

    @classmethod
    def of(cls, path: Path) -> Identity:
        """Return a file's."""
        found = os.stat(path)
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)


def publication_has_begun(destination: Path) -> bool:
    """Report whether it is on record that a run gives its files their names."""
    return any(line.startswith(RECORD_BEGINS) for line in _lines(destination)[-1:])


def _lines(destination: Path) -> list[bytes]:
    """Return the lines of a broken run's journal that have an end."""
    try:
        return (destination / RUN / JOURNAL).read_bytes().split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError):
        return []


def journal(destination: Path) -> list[dict[str, Any]]:
    """Return the lines on units of a broken run's journal, up to the first one that is not whole."""
    lines = [each for each in _lines(destination) if not each.startswith(RECORD_BEGINS)]
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            # A power cut may leave any part of a line that was not synced, and of later lines.
            break
        found.append(entry)
    return found


def finished_units(destination: Path) -> dict[str, tuple[str, ...]]:
    """Return the units that a broken run's journal calls staged, each with its staged files."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in journal(destination):
        if entry.get("event") == "staged":
            files = entry["finished"]["files"]
            found[str(entry["unit"])] = tuple(str(file["path"]) for file in files)
    return found


def staged_identities(destination: Path) -> dict[str, tuple[Identity, ...]]:
    """Return the finished units of a broken run whose files all lie where they were staged."""
    found = {}
    for unit, names in finished_units(destination).items():
        # The files of one table of many are in `_run` itself.
        for folder in (destination / RUN / "staged", destination / RUN):
            paths = [folder / name for name in names]
            if paths and all(path.is_file() for path in paths):
                found[unit] = tuple(Identity.of(path) for path in paths)
    return found


def final_identities(destination: Path) -> dict[str, tuple[Identity, ...]]:
    """Return the units of a finished run with their files."""
    document = json.loads((destination / MANIFEST).read_bytes())
    return {
        str(unit["id"]): tuple(Identity.of(destination / file["path"]) for file in unit["files"])
        for unit in document["units"]
    }


def unfinished_under_final_names(
    destination: Path, *, foreign: frozenset[str] = frozenset()
) -> str:
    """Return the damaged files under final names; empty if all are whole.

    Either there is a manifest and every file that it lists, of that size, or there is nothing.
    """
    if not destination.exists():
        return ""
    names = {entry.name for entry in destination.iterdir()} - {RUN} - foreign
    if MANIFEST not in names:
        return f"{sorted(names)} without a manifest" if names else ""
    try:
        document = json.loads((destination / MANIFEST).read_bytes())
    except ValueError as error:
        return f"a manifest that is no JSON: {error}"
    if document["status"] != "complete":
        return f"a manifest that says {document['status']}"
    listed = {
        str(file["path"]): file["bytes"] for unit in document["units"] for file in unit["files"]
    }
    for name, size in sorted(listed.items()):
        path = destination / name
        if not path.is_file():
            return f"a manifest without {name}"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, its manifest says {size}"
    others = names - listed.keys() - {MANIFEST}
    return f"{sorted(others)}, which the manifest does not list" if others else ""


def _without(value: Any, keys: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(each, keys) for key, each in value.items() if key not in keys}
    if isinstance(value, list):
        return [_without(each, keys) for each in value]
    return value


def _differing(where: str, one: Any, other: Any) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            text
            for key in sorted({*one, *other})
            for text in _differing(f"{where}.{key}", one.get(key), other.get(key))
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            text
            for place, (a, b) in enumerate(zip(one, other, strict=True))
            for text in _differing(f"{where}[{place}]", a, b)
        ]
    return [] if one == other else [f"{where}: {one!r} and {other!r}"]
