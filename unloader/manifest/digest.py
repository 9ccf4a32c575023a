"""The text of a manifest, with the checksum of itself that reveals an edit or a flipped bit.

The digest is the SHA-256 of all bytes before its own line, which is the last but one:
`head -n -2 _manifest.json | sha256sum` computes the same. A person who edits a manifest and also
computes the digest again is not found: that needs a signature, and a key that this person lacks.
"""

from __future__ import annotations

import hashlib
import re

from msgspec import json
from msgspec.structs import replace

from unloader.manifest.model import Manifest
from unloader.manifest.tables import TablesManifest

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
    """Tell whether a manifest's bytes end with their own digest."""
    return digest_at_end(data) == _digest(data[:-_END_BYTES])


def _digest(body: bytes) -> str:
    return f"{NAME}:{hashlib.sha256(body).hexdigest()}"
