"""Files of age read by the rules of age-encryption.org/v1, with primitives of `cryptography` alone.

A second implementation: the program writes with the Rust one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_FIRST = b"age-encryption.org/v1"
_CHUNK = 64 * 1024
_TAG = 16
_LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
"""The alphabet of Bech32 (BIP 173)."""


class NotDecrypted(Exception):
    """The file is for others, damaged, or not whole."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A pair of keys, as age writes them."""

    private: str
    public: str


def new_keys() -> Keys:
    """Return a new pair."""
    key = X25519PrivateKey.generate()
    return Keys(
        private=_bech32("age-secret-key-", key.private_bytes_raw()).upper(),
        public=_bech32("age", key.public_key().public_bytes_raw()),
    )


def decrypted(data: bytes, private: str) -> bytes:
    """Return what a file holds.

    Raises:
        NotDecrypted: It is not whole, was changed, or the key is not a recipient's.
    """
    stanzas, mac, covered, payload = _parts(data)
    file_key = _file_key(stanzas, X25519PrivateKey.from_private_bytes(_bytes_of(private)))
    expected = hmac.new(_derived(file_key, b"", b"header"), covered, hashlib.sha256).digest()
    if not hmac.compare_digest(mac, expected):
        raise NotDecrypted("the header was changed")
    cipher = ChaCha20Poly1305(_derived(file_key, payload[:16], b"payload"))
    return b"".join(_chunks(cipher, payload[16:]))


def _parts(data: bytes) -> tuple[list[tuple[list[str], bytes]], bytes, bytes, bytes]:
    """Return recipient stanzas, the MAC, the bytes that it covers, and the payload."""
    if not data.startswith(_FIRST + b"\n"):
        raise NotDecrypted("this is no file of age")
    end = data.index(b"\n--- ") + 1
    line, _, payload = data[end:].partition(b"\n")
    stanzas: list[tuple[list[str], bytes]] = []
    body = ""
    for each in data[len(_FIRST) + 1 : end].decode().splitlines():
        if each.startswith("-> "):
            stanzas.append((each[3:].split(" "), b""))
            body = ""
        else:
            body += each
            stanzas[-1] = (stanzas[-1][0], _base64(body))
    return stanzas, _base64(line[4:].decode()), data[: end + 3], payload


def _file_key(stanzas: Iterable[tuple[list[str], bytes]], key: X25519PrivateKey) -> bytes:
    mine = key.public_key().public_bytes_raw()
    for words, body in stanzas:
        if words[0] != "X25519":
            continue
        share = _base64(words[1])
        shared = key.exchange(X25519PublicKey.from_public_bytes(share))
        wrapping = _derived(shared, share + mine, b"age-encryption.org/v1/X25519")
        try:
            return ChaCha20Poly1305(wrapping).decrypt(bytes(12), body, None)
        except InvalidTag:
            continue
    raise NotDecrypted("the key is no recipient's")


def _chunks(cipher: ChaCha20Poly1305, rest: bytes) -> Iterable[bytes]:
    size = _CHUNK + _TAG
    for number, start in enumerate(range(0, max(1, len(rest)), size)):
        last = start + size >= len(rest)
        nonce = number.to_bytes(11, "big") + (b"\1" if last else b"\0")
        try:
            yield cipher.decrypt(nonce, rest[start : start + size], None)
        except InvalidTag:
            raise NotDecrypted(f"chunk {number} was changed, or is not the last one") from None


def _derived(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(key)


def _base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _bech32(name: str, data: bytes) -> str:
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    values = [int(bits[at : at + 5], 2) for at in range(0, len(bits), 5)]
    check = _polymod([*_expanded(name), *values, *[0] * 6]) ^ 1
    values += [check >> 5 * (5 - at) & 31 for at in range(6)]
    return name + "1" + "".join(_LETTERS[value] for value in values)


def _bytes_of(text: str) -> bytes:
    name, _, coded = text.lower().rpartition("1")
    values = [_LETTERS.index(letter) for letter in coded]
    assert _polymod([*_expanded(name), *values]) == 1
    bits = "".join(f"{value:05b}" for value in values[:-6])
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) // 8 * 8, 8))


def _expanded(name: str) -> list[int]:
    return [ord(each) >> 5 for each in name] + [0] + [ord(each) & 31 for each in name]


def _polymod(values: Iterable[int]) -> int:
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, term in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            check ^= term if top >> bit & 1 else 0
    return check
