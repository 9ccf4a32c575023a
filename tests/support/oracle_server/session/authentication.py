"""Logins with the 11g and 12c verifiers, as a server sees them: passwords are really checked.

Neither side sends the password: both derive a key from it, and the client sends the password under
the session key that only somebody with that key can make.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from oracle_server.model import OracleError

VERIFIER_FLAGS = {"11g": 0x1B25, "12c": 0x4815}
"""Value of the flags beside AUTH_VFR_DATA, which is how a client knows the verifier."""
_SALT_BYTES = {"11g": 10, "12c": 16}
_KEY_BYTES = {"11g": 24, "12c": 32}
_KEY_PART = 32
_GENERATE = 4096
_DERIVE = 3
_BLOCK = 16


def denied() -> OracleError:
    """Return what every failed login ends with, whatever it failed for."""
    return OracleError(1017, "invalid username/password; logon denied")


def encrypt(key: bytes, data: bytes) -> bytes:
    """Return whole blocks encrypted: AES in CBC mode from a vector of zeros."""
    encryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(_BLOCK))).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def decrypt(key: bytes, data: bytes) -> bytes:
    """Return whole blocks decrypted."""
    decryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(_BLOCK))).decryptor()
    return decryptor.update(data) + decryptor.finalize()


@dataclass(slots=True)
class Login:
    """One attempt to log in; its secrets are made anew."""

    verifier: str
    password: str | None
    """None: there is no such user, and the attempt fails without telling so."""
    salt: bytes = field(init=False)
    part: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY_PART))
    combination_salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    key: bytes = b""
    """The session key, once the client has sent its part."""

    def __post_init__(self) -> None:
        """Make the salt of the verifier."""
        self.salt = secrets.token_bytes(_SALT_BYTES[self.verifier])

    def challenge(self) -> tuple[tuple[str, str, int], ...]:
        """Return what phase one answers: name, value and flags, in the order of real servers."""
        pairs = [
            ("AUTH_SESSKEY", _text(encrypt(self._password_key(), self.part)), 0),
            ("AUTH_VFR_DATA", _text(self.salt), VERIFIER_FLAGS[self.verifier]),
            ("AUTH_PBKDF2_CSK_SALT", _text(self.combination_salt), 0),
        ]
        if self.verifier == "12c":
            pairs.append(("AUTH_PBKDF2_VGEN_COUNT", str(_GENERATE), 0))
        pairs.append(("AUTH_PBKDF2_SDER_COUNT", str(_DERIVE), 0))
        pairs.append(("AUTH_GLOBALLY_UNIQUE_DBID\0", _text(secrets.token_bytes(16)), 0))
        return tuple(pairs)

    def check(self, answer: Mapping[str, str]) -> str:
        """Check what phase two brings and return the value of AUTH_SVR_RESPONSE.

        Raises:
            OracleError: ORA-01017, the password is wrong or there is no such user.
        """
        theirs = decrypt(self._password_key(), bytes.fromhex(answer.get("AUTH_SESSKEY", "")))
        size = _KEY_BYTES[self.verifier]
        both = (theirs[:size] + self.part[:size]).hex().upper().encode()
        self.key = hashlib.pbkdf2_hmac("sha512", both, self.combination_salt, _DERIVE, size)
        sealed = bytes.fromhex(answer.get("AUTH_PASSWORD", ""))
        if self.password is None or not _is_sealed(self.key, sealed, self.password):
            raise denied()
        proof = secrets.token_bytes(16) + b"SERVER_TO_CLIENT" + 16 * b"\x10"
        return _text(encrypt(self.key, proof))

    def _password_key(self) -> bytes:
        password = secrets.token_hex(16) if self.password is None else self.password
        if self.verifier == "11g":
            return hashlib.sha1(password.encode() + self.salt).digest() + bytes(4)
        salt = self.salt + b"AUTH_PBKDF2_SPEEDY_KEY"
        speedy = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _GENERATE, 64)
        return hashlib.sha512(speedy + self.salt).digest()[:32]


def user_name(text: str) -> str:
    """Return a user's name as the dictionary has it: upper case unless quoted."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    return text.upper()


def _is_sealed(key: bytes, sealed: bytes, password: str) -> bool:
    if not sealed or len(sealed) % _BLOCK:
        return False
    unpadder = PKCS7(8 * _BLOCK).unpadder()
    try:
        plain = unpadder.update(decrypt(key, sealed)) + unpadder.finalize()
    except ValueError:
        return False
    return hmac.compare_digest(plain[_BLOCK:], password.encode())


def _text(data: bytes) -> str:
    return data.hex().upper()
