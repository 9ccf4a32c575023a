"""Text encrypted with age (age-encryption.org/v1), by the package `pyrage`.

Bytes go through in pieces of 64 KiB, so the memory does not depend on the size of a file. Each file
has a separate key, so equal texts have different files. This is the only module that knows the
library.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from writers.codecs.compression import BytesLike
from writers.errors import FormatError, WriteError

SUFFIX = ".age"
"""What encryption adds to the extension of a text file."""

RECIPIENT = "age1"
"""What every public key begins with."""

IDENTITY = "AGE-SECRET-KEY-1"
"""What every private key begins with."""


def check_recipients(recipients: Sequence[str]) -> None:
    """Refuse texts that are not public keys of age, by number: they may be private keys."""
    library = _library()
    for number, recipient in enumerate(recipients, 1):
        try:
            library.x25519.Recipient.from_str(recipient)
        except library.RecipientError as error:
            raise FormatError(
                f"recipient {number} is not a public key of age.",
                "give a public key that `age-keygen -y` shows: age1 and 58 more characters.",
            ) from error


def public_keys(identities: Sequence[str]) -> tuple[str, ...]:
    """Return the public keys of private ones; a text that is not a key is not shown."""
    return tuple(str(each.to_public()) for each in _identities(identities))


def encrypt(
    pieces: Iterator[BytesLike], put: Callable[[BytesLike], None], recipients: Sequence[str]
) -> None:
    """Encrypt pieces with keys into `put`; after an error of a piece the file has no valid end."""
    library = _library()
    known = [library.x25519.Recipient.from_str(each) for each in recipients]
    relay = _Relay(pieces, put)
    try:
        library.encrypt_io(relay, relay, known)
    except library.EncryptError as error:
        # The library turns errors of its source and its target into a text.
        if relay.failure is not None:
            raise relay.failure from None
        raise WriteError(f"age could not encrypt: {error}.", "report this.") from error


class Decrypted(io.RawIOBase):
    """The bytes of an encrypted file before they were encrypted; the file is closed at the end.

    A thread decrypts into a pipe, which limits the memory. Reading raises ValueError where the file
    is damaged, not whole, or for others. FormatError: an identity is not a private key of age.
    """

    def __init__(self, file: Any, identities: Sequence[str]) -> None:
        self._file = file
        self._failure: Exception | None = None
        keys = _identities(identities)
        self._reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._decrypt, args=(keys,), daemon=True)
        self._thread.start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = os.readv(self._reading, [buffer]) if len(buffer) else 0
        if not count and len(buffer):
            self._thread.join()
            if self._failure is not None:
                raise ValueError(f"it cannot be decrypted: {self._failure}") from self._failure
        return count

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._reading)
            self._thread.join()

    def _decrypt(self, keys: list[Any]) -> None:
        try:
            with open(self._writing, "wb", buffering=0) as target, self._file:
                _library().decrypt_io(self._file, target, keys)
        except Exception as error:
            self._failure = error


class _Relay:
    """Pieces as the library reads them, and the target as it writes to it."""

    def __init__(self, pieces: Iterator[BytesLike], put: Callable[[BytesLike], None]) -> None:
        self._pieces, self._put = pieces, put
        self._rest = memoryview(b"")
        self.failure: BaseException | None = None

    def read(self, size: int) -> bytes:
        try:
            while not self._rest.nbytes:
                # Let go before the next one is asked for: its memory is used again.
                self._rest = memoryview(b"")
                if (piece := next(self._pieces, None)) is None:
                    return b""
                self._rest = memoryview(piece).cast("B")
                del piece
            data, self._rest = bytes(self._rest[:size]), self._rest[size:]
            return data
        except BaseException as error:
            self.failure = error
            raise

    def write(self, data: bytes) -> int:
        try:
            self._put(data)
        except BaseException as error:
            self.failure = error
            raise
        return len(data)

    def flush(self) -> None:
        pass


def _identities(texts: Sequence[str]) -> list[Any]:
    library = _library()
    found = []
    for text in texts:
        try:
            found.append(library.x25519.Identity.from_str(text))
        except library.IdentityError:
            # Not from the library's error, which may show the key.
            raise FormatError(
                "the given text is not a private key of age.",
                "give a file that `age-keygen -o FILE` made.",
            ) from None
    return found


def _library() -> Any:
    try:
        import pyrage
    except ImportError as error:
        raise FormatError(
            f"the module {error.name!r} is not installed.", "pip install 'unloader[encryption]'"
        ) from error
    return pyrage
