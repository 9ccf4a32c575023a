"""Proofs that tell whether a secret is the same as before, and not what it is."""

from __future__ import annotations

import hashlib
import os


def proof_of(secret: bytes) -> str:
    """Return a salted hash that takes long enough to make guessing the secret hopeless."""
    return _hash(secret, os.urandom(16).hex())


def is_proof_of(secret: bytes, proof: str) -> bool:
    """Return whether a proof was made of this secret; an empty one is of none."""
    salt = proof.partition(":")[0]
    return bool(salt) and _hash(secret, salt) == proof


def _hash(secret: bytes, salt: str) -> str:
    found = hashlib.scrypt(secret, salt=bytes.fromhex(salt), n=2**14, r=8, p=1, dklen=32)
    return f"{salt}:{found.hex()}"
