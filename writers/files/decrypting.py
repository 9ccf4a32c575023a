"""Encrypted text as a file that is read like any other."""

from __future__ import annotations

import io
from functools import partial
from typing import IO, cast

from writers.files.readable import Readable, RemoteFile, open_bytes
from writers.model import Encryption


def decrypted(file: Readable, encryption: Encryption) -> Readable:
    """Return text as it was before it was encrypted; what was not is returned as it is.

    Parquet is decrypted by its reader.
    """
    if not encryption.recipients:
        return file
    return RemoteFile(name=str(file), open=partial(_open, file, encryption.identities))


def _open(file: Readable, identities: tuple[str, ...]) -> IO[bytes]:
    # Imported on use: few files are encrypted.
    from writers.encryption.age import Decrypted

    return cast("IO[bytes]", io.BufferedReader(Decrypted(open_bytes(file), identities), 1 << 20))
