"""From CONNECT to the agreed capabilities: messages of a server of each release before the login.

Real servers announce nearly all capabilities; this server announces the ones it keeps. Lengths,
banners, versions and the order of everything are real.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace

from oracle_server.wire.requests import Reader

LEAST_VERSION = 315
END_OF_RESPONSE_VERSION = 319
_NO_OUT_OF_BAND = 0x0001
_ACCEPT_FLAGS_23 = 0x1A000000
"""Fast authentication 10, end of response 02, and 08 that real servers set."""
_SDU_MIN = 512
_SDU_MAX = 2 << 20
_CONNECT_BODY_SDU = 50
_UUID_BYTES = 16
_NATIONAL_CHARSET = (2000).to_bytes(2, "little")

CHARSETS = {
    "US7ASCII": 1,
    "WE8ISO8859P1": 31,
    "WE8ISO8859P15": 46,
    "WE8MSWIN1252": 178,
    "ZHS16GBK": 852,
    "AL32UTF8": 873,
}
_ELEMENTS = bytes.fromhex(
    "6603400301 4003660301 6603480301 4803660301 6603520301"
    "5203660301 6603610301 6103660301 66031f0308 1f03660301"
)
_ELEMENT_BYTES = 5
"""Conversions between character sets that a database in AL32UTF8 lists, five bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What makes a release, as far as the wire shows it."""

    protocol: int
    field_version: int
    compile_length: int
    fast_authentication: bool
    resends: bool
    """The first CONNECT is answered with RESEND."""
    version: int
    """AUTH_VERSION_NO: release 8 bits, update 8, then 4, 8 and 4."""
    product: str
    """The start of the version call's answer and the banner."""
    banner: str

    @property
    def version_text(self) -> str:
        """The answer to the version call, in two lines."""
        widths = ((24, 0xFF), (16, 0xFF), (12, 15), (4, 0xFF), (0, 15))
        release = ".".join(str(self.version >> shift & mask) for shift, mask in widths)
        return f"{self.product} {self.banner}\nVersion {release}"


MODES = {
    "19c": Mode(
        protocol=318,
        field_version=12,
        compile_length=42,
        fast_authentication=False,
        resends=True,
        version=0x13160000,
        product="Oracle Database 19c Enterprise Edition Release 19.0.0.0.0",
        banner="- Production",
    ),
    "21c": Mode(
        protocol=318,
        field_version=16,
        compile_length=45,
        fast_authentication=False,
        resends=True,
        version=0x15030000,
        product="Oracle Database 21c Express Edition Release 21.0.0.0.0",
        banner="- Production",
    ),
    "23ai": Mode(
        protocol=319,
        field_version=27,
        compile_length=54,
        fast_authentication=True,
        resends=False,
        version=0x171A2000,
        product="Oracle AI Database 26ai Free Release 23.26.2.0.0",
        banner="- Develop, Learn, and Run for Free",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """A client's CONNECT."""

    version: int
    sdu: int
    length: int
    """Of the connect data; it follows in a DATA packet if this is empty."""
    data: str

    @classmethod
    def parse(cls, body: bytes) -> Connect:
        length = int.from_bytes(body[16:18], "big")
        start = int.from_bytes(body[18:20], "big") - 8
        data = body[start : start + length] if len(body) >= start + length else b""
        at = _CONNECT_BODY_SDU
        large = int.from_bytes(body[at : at + 4], "big") if start >= at + 4 else 0
        small = int.from_bytes(body[6:8], "big")
        return cls(
            version=int.from_bytes(body[:2], "big"),
            sdu=large or small,
            length=length,
            data=data.decode(),
        )

    def with_data(self, data: str) -> Connect:
        return replace(self, data=data)


def agreed_sdu(client: int, server: int) -> int:
    """Return the smaller of both sides' session data units, within the limits of the protocol."""
    return max(_SDU_MIN, min(client, server, _SDU_MAX))


def service_of(data: str) -> tuple[str, str]:
    """Return what connect data asks for: SERVICE_NAME or SID, and the name without `:POOLED`."""
    for kind in ("SERVICE_NAME", "SID"):
        found = re.search(rf"\({kind}\s*=\s*([^()]*)\)", data, re.IGNORECASE)
        if found:
            return kind, found[1].strip().partition(":")[0]
    return "SERVICE_NAME", ""


def accept(mode: Mode, version: int, sdu: int) -> bytes:
    is_new = version >= END_OF_RESPONSE_VERSION
    extra = (
        _ACCEPT_FLAGS_23.to_bytes(4, "big") + secrets.token_bytes(_UUID_BYTES)
        if is_new and mode.fast_authentication
        else bytes(4)
    )
    tail = bytes(8) + 2 * sdu.to_bytes(4, "big") + b"\x00" + extra
    head = (
        version.to_bytes(2, "big"),
        _NO_OUT_OF_BAND.to_bytes(2, "big"),
        bytes(4),
        b"\x01\x00",
        bytes(2),
        (8 + 16 + len(tail)).to_bytes(2, "big"),
        b"\xc5\x00",
    )
    return b"".join((*head, tail))


def refusal(code: int) -> bytes:
    text = (
        f"(DESCRIPTION=(TMP=)(VSNNUM=0)(ERR={code})(ERROR_STACK=(ERROR=(CODE={code})(EMFI=4))))"
    ).encode()
    return b"\x22\x00" + len(text).to_bytes(2, "big") + text


def redirection(host: str, port: int, connect_data: str) -> bytes:
    """Return the text of a REDIRECT: the address, a zero, the connect data to send there."""
    return f"(ADDRESS=(PROTOCOL=tcp)(HOST={host})(PORT={port}))\0{connect_data}".encode()


def protocol_reply(mode: Mode, *, charset: int) -> bytes:
    """Return message 1, with the id of the database's character set."""
    elements = _ELEMENTS if charset == CHARSETS["AL32UTF8"] else b""
    formats = bytes((0, 0, 0, 0x60, 1, 0x24, 0x0F)) + bytes(50)
    formats += bytes((0x83, 0x03, 0x69, 0x07, 0xD0, 0x03)) + bytes(37)
    caps = compile_capabilities(mode)
    runtime = bytes((2, 1, 0, 1, 0x18, 0, 0x04))
    return b"".join(
        (
            b"\x01\x06\x00",
            b"x86_64/Linux 2.4.xx\x00",
            charset.to_bytes(2, "little"),
            b"\x23" if mode.fast_authentication else b"\x01",
            (len(elements) // _ELEMENT_BYTES).to_bytes(2, "little"),
            elements,
            len(formats).to_bytes(2, "big"),
            formats,
            bytes((len(caps),)) + caps,
            bytes((len(runtime),)) + runtime,
        )
    )


def compile_capabilities(mode: Mode) -> bytes:
    caps = bytearray(mode.compile_length)
    caps[0] = 6
    # Every kind of login, the PBKDF2 one of 12c included, which covers 11g verifiers too.
    caps[4] = 0xEF
    caps[7] = mode.field_version
    caps[15] = 0x7F
    caps[16] = 0xFF
    caps[17:22] = bytes((3, 16, 3, 3, 1))
    caps[23] = 0xFF
    caps[27] = 1
    # Implicit results 10, chunk lengths as integers 20, order kept 80; no time zone version 02.
    caps[37] = 0xB0
    # End of response 20; no request boundaries 40.
    caps[40] = 0x20 if mode.fast_authentication else 0
    return bytes(caps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client's data types message."""

    driver: str
    compile_caps: bytes
    runtime_caps: bytes
    types: bytes
    """The list of data types, word for word: the reply repeats it."""

    def has(self, index: int, bits: int) -> bool:
        """Report whether a compile time capability is there."""
        return len(self.compile_caps) > index and bool(self.compile_caps[index] & bits)

    @property
    def wide_scale(self) -> bool:
        """Scales of numbers and timestamps are integers of two bytes (Go and Java clients)."""
        return self.has(10, 0x01)

    @property
    def vectors(self) -> bool:
        """Repeated values may be left out of rows."""
        return self.has(15, 0x20)

    @property
    def has_zone(self) -> bool:
        """A time zone is in both data types messages."""
        return len(self.runtime_caps) > 1 and self.runtime_caps[1] == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What both sides agreed on before the login."""

    field_version: int
    charset: int
    """Id of the database's character set."""
    vectors: bool
    """Repeated values are left out of rows."""
    wide_scale: bool
    bare_texts: bool = False
    """Statements and names come without their own length."""


def parse_protocol(reader: Reader) -> str:
    """Read the rest of message 1 and return the driver's name."""
    reader.terminated()
    return reader.terminated().decode()


def parse_data_types(reader: Reader, driver: str) -> Client:
    reader.raw(5)
    compile_caps = reader.clr() or b""
    runtime_caps = reader.clr() or b""
    if len(runtime_caps) > 1 and runtime_caps[1] == 1:
        reader.raw(11)
    types = bytearray()
    national = reader.raw(2)
    # Go and Java clients name their national character set first; no type has such a number.
    number = reader.raw(2) if national == _NATIONAL_CHARSET else national
    while True:
        types += number
        if number == b"\0\0":
            break
        conversion = reader.raw(2)
        types += conversion
        if conversion != b"\0\0":
            types += reader.raw(4)
        number = reader.raw(2)
    return Client(
        driver=driver, compile_caps=compile_caps, runtime_caps=runtime_caps, types=bytes(types)
    )


def data_types_reply(client: Client) -> bytes:
    """Return message 2: the client's own list, as real servers do."""
    zone = b"\x80\0\0\0\x3c\x3c\x3c\x80\0\0\0" if client.has_zone else b""
    return b"\x02" + zone + client.types
