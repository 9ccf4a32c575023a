"""The manifest's checksum of itself, by which an edit or a flipped bit is found.

The digest is the SHA-256 of all bytes in front of its own line, which is the last but one:
`head -n -2 _manifest.json | sha256sum` computes the same. Who edits a manifest and computes the
digest anew is not found: that needs a signature, and a key that the editor does not have.
"""

from __future__ import annotations

import hashlib
import re

NAME = "sha256"

_END = re.compile(rb'  "digest": "(' + NAME.encode() + rb':[0-9a-f]{64})"\n\}\n\Z')
_END_BYTES = len(f'  "digest": "{NAME}:{"0" * 64}"\n}}\n')


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
