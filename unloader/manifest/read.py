"""Writes the text of a manifest with its digest, and reads manifests back.

`_manifest.json` in the destination is written last, so its presence means that the run is complete.
Resume and verify trust the manifest and the journal and nothing else.

The digest is the SHA-256 of all bytes before its own line, which is the last but one:
`head -n -2 _manifest.json | sha256sum` computes the same. It reveals an edit or a flipped bit. A
person who edits a manifest can also compute the digest again: only a signature would reveal that.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from unloader.errors import OutputFailed
from unloader.manifest.model import FORMAT_VERSION, Manifest, TablesManifest
from unloader.storage.place_names import PlacePath, path_of
from unloader.storage.storage_lookup import storage_at
from unloader.storage.storage_protocol import MANIFEST, Index, Storage
from writers.files.publish import INDEX

_RESTORE = "restore it, or unload again to another directory"

NAME = "sha256"

_END = re.compile(rb'  "digest": "(' + NAME.encode() + rb':[0-9a-f]{64})"\n\}\n\Z')
_END_BYTES = len(f'  "digest": "{NAME}:{"0" * 64}"\n}}\n')


def manifest_bytes(manifest: Manifest | TablesManifest) -> bytes:
    """Return the text of a manifest as it is written, its digest at the end."""
    text = json.format(json.encode(replace(manifest, digest=None)), indent=2)
    return with_digest(text + b"\n")


def with_digest(text: bytes) -> bytes:
    """Return the text of a manifest, whose last bytes are `\\n}\\n`, with its digest added."""
    body = text[: -len(b"\n}\n")] + b",\n"
    return body + f'  "digest": "{_digest(body)}"\n}}\n'.encode()


def digest_at_end(data: bytes) -> str | None:
    """Return the digest that a manifest's bytes end with, None where they end otherwise."""
    match = _END.match(data, max(0, len(data) - _END_BYTES))
    return match[1].decode() if match else None


def is_intact(data: bytes) -> bool:
    """Return whether the bytes of a manifest end with the digest of the bytes before it."""
    return digest_at_end(data) == _digest(data[:-_END_BYTES])


def _digest(body: bytes) -> str:
    return f"{NAME}:{hashlib.sha256(body).hexdigest()}"


class _Head(Struct, frozen=True, kw_only=True):
    format_version: Any = None
    run_id: object = None
    tables: Raw = Raw()


# Made in the thread that imports: msgspec 0.22 crashes the process if two threads decode a type for
# the first time at the same time.
_HEAD = json.Decoder(_Head)
_MANIFEST = json.Decoder(Manifest)
_TABLES = json.Decoder(TablesManifest)


def read_manifest(destination: PlacePath, name: str = MANIFEST) -> Manifest:
    """Return the manifest of one table, or the record of an unfinished run by its name.

    OutputFailed: it does not exist, is damaged, of another format version, or of several tables.
    """
    path = destination / name
    manifest = parse_run(manifest_data(destination, name), path)
    if isinstance(manifest, TablesManifest):
        raise OutputFailed(
            f"{path} is the manifest of a run of several tables; each table has a separate "
            "manifest",
            "give the directory of one of the tables in its list",
        )
    return manifest


def home_manifest(place: PlacePath) -> TablesManifest | None:
    """Return the manifest of a finished run over several tables; None if none is readable there."""
    try:
        data = storage_at(str(place)).read(str(place), MANIFEST)
        found = parse_run(data, place / MANIFEST)
    except (OSError, OutputFailed):
        return None
    return found if isinstance(found, TablesManifest) else None


def manifest_data(destination: PlacePath, name: str = MANIFEST) -> bytes:
    """Return the unchecked bytes of a manifest; raise OutputFailed if they cannot be read."""
    place = str(destination)
    try:
        return storage_at(place).read(place, name)
    except FileNotFoundError:
        raise OutputFailed(
            f"{destination} has no finished run: {MANIFEST} does not exist",
            "give the directory that was given with --to",
        ) from None
    except NotADirectoryError:
        raise OutputFailed(
            f"{destination} is a file, but a run is in a directory",
            f"give the directory: {destination.parent}",
        ) from None
    except OSError as error:
        raise OutputFailed(
            f"{destination / name} cannot be read: {error.strerror or error}", _RESTORE
        ) from error


def read_index(data: bytes, place: str) -> Index:
    """Return what a storage must know of a run; raise OutputFailed for a damaged manifest."""
    found = parse_run(data, path_of(place) / MANIFEST)
    if isinstance(found, TablesManifest):
        # The files are in the directories of its tables.
        return Index(run_id=found.run_id, places=(place,), files=())
    return Index(
        run_id=found.run_id,
        places=(place, *(str(each) for each in directories_of(found, path_of(place))[1:])),
        # A folder of large objects is known by its index.
        files=tuple(
            (file.directory, name.removesuffix(INDEX) if name.endswith(f"/{INDEX}") else name)
            for name, file in found.files.items()
        ),
    )


def parse_run(data: bytes, path: PlacePath) -> Manifest | TablesManifest:
    """Return the manifest that these bytes are; OutputFailed if they were changed, are not a whole
    manifest, or have another format version."""
    digest = digest_at_end(data)
    if digest and not is_intact(data):
        raise _changed(path, "its digest does not match its text")
    try:
        head = _HEAD.decode(data)
        if head.format_version == FORMAT_VERSION and digest:
            if bytes(head.tables):
                return _TABLES.decode(data)
            manifest = _MANIFEST.decode(data)
            _check_directories(manifest)
            return manifest
    # Where it is nested too deep, it is a RecursionError.
    except (ValueError, RecursionError) as error:
        raise OutputFailed(f"{path} is damaged: {error}", _RESTORE) from error
    if head.format_version != FORMAT_VERSION:
        raise OutputFailed(
            f"{path} has format version {head.format_version!r:.40}, but this program reads "
            f"{FORMAT_VERSION}",
            "use the version of unloader that wrote it, or unload again to another directory",
        )
    raise _changed(path, "it does not end with its digest")


def _check_directories(manifest: Manifest) -> None:
    known = max(1, len(manifest.directories or ()))
    for at, unit in enumerate(manifest.units):
        for number, file in enumerate(unit.files):
            if not 0 <= file.directory < known:
                where = f"$.units[{at}].files[{number}].directory"
                raise ValueError(
                    f"Expected a number below {known}, got {file.directory} - at `{where}`"
                )


def _changed(path: PlacePath, why: str) -> OutputFailed:
    return OutputFailed(f"{path} was changed after it was written: {why}", _RESTORE)


def directories_of(
    manifest: Manifest, home: PlacePath, *, recorded: bool = False
) -> tuple[PlacePath, ...]:
    """Return the directories that hold a run's files, in the order of their numbers.

    The first one is `home`, where the manifest is now, or with `recorded` where it was at the time.
    """
    listed = tuple(path_of(each.path) for each in manifest.directories or ())
    if not listed:
        return (home,)
    first = listed[0] if recorded else home
    # Directories of merged parts are relative to the first; an absolute path stays as it is.
    return (first, *(first / each for each in listed[1:]))


def is_published(storage: Storage, place: str, run_id: str) -> bool:
    try:
        return _HEAD.decode(storage.read(place, MANIFEST)).run_id == run_id
    except (OSError, ValueError, RecursionError):
        return False
