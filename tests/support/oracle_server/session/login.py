"""The login: versions agreed on, verifiers of passwords, and the first messages."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from oracle_server.faults import Faults
from oracle_server.model import OracleError, SessionState
from oracle_server.session.session import LANGUAGE, Database, Session, user_name
from oracle_server.wire import negotiation
from oracle_server.wire import requests as calls
from oracle_server.wire.channel import (
    ACCEPT,
    CONNECT,
    DATA,
    END_OF_FILE,
    REDIRECT,
    REDIRECTED,
    REFUSE,
    RESEND,
    TEXT_FOLLOWS,
    Channel,
    Disconnected,
)
from oracle_server.wire.errors import Outcome, login_parameters, login_return, send_error
from oracle_server.wire.negotiation import CHARSETS, MODES, Client, Connect, Mode, Terms
from oracle_server.wire.requests import Head, LoginRequest, Reader

if TYPE_CHECKING:
    from oracle_server.data.definitions import User


VERIFIER_FLAGS = {"11g": 0x1B25, "12c": 0x4815}
"""Value of the flags beside AUTH_VFR_DATA, which is how a client knows the verifier."""
_SALT_BYTES = {"11g": 10, "12c": 16}
_KEY_BYTES = {"11g": 24, "12c": 32}
_KEY_PART = 32
_GENERATE = 4096
_DERIVE = 3
_BLOCK = 16


def denied() -> OracleError:
    """Return the end of every failed login, for all reasons."""
    return OracleError(1017, "invalid username/password; logon denied")


def encrypt(key: bytes, data: bytes) -> bytes:
    """Return whole blocks encrypted: AES in CBC mode from a vector of zeros."""
    encryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(_BLOCK))).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def decrypt(key: bytes, data: bytes) -> bytes:
    decryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(_BLOCK))).decryptor()
    return decryptor.update(data) + decryptor.finalize()


@dataclass(slots=True)
class Login:
    """One attempt to log in; its secrets are made again."""

    verifier: str
    password: str | None
    """None for an unknown user; the attempt fails with the usual error."""
    salt: bytes = field(init=False)
    part: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY_PART))
    combination_salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    key: bytes = b""
    """The session key, once the client has sent its part."""

    def __post_init__(self) -> None:
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
        """Check phase two and return the value of AUTH_SVR_RESPONSE.

        Raises:
            OracleError: ORA-01017, the password is wrong or the user is unknown.
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


_HOST = "oracle-test"
_DATABASE_ID = "1385559638"
_PROCESS = "4711"


def login_pairs(
    mode: Mode, state: SessionState, *, service: str, user_id: int, server_response: str
) -> tuple[tuple[str, str, int], ...]:
    """Return the pairs of phase two: name, value and flags.

    Args:
        service: As the server calls it.
        server_response: Proof that the server knows the password; empty after a token.
    """
    name = service.upper()
    instance = name.removesuffix("PDB1") or name
    newest = mode.field_version >= 17
    pairs = {
        "AUTH_VERSION_STRING": mode.banner,
        "AUTH_VERSION_SQL": "26" if newest else "25",
        "AUTH_XACTION_TRAITS": "3",
        "AUTH_VERSION_NO": str(mode.version),
        "AUTH_VERSION_STATUS": "0",
        "AUTH_CAPABILITY_TABLE": "",
        "AUTH_LAST_LOGIN": "787E060B130C39000000000000",
        "AUTH_DBNAME": name,
        "AUTH_DB_MOUNT_ID\0": "1507733648",
        "AUTH_DB_ID\0": _DATABASE_ID,
        "AUTH_USER_ID": str(user_id),
        "AUTH_SESSION_ID": str(state.sid),
        "AUTH_SERIAL_NUM": str(state.serial),
        "AUTH_INSTANCE_NO": "1",
        "AUTH_FAILOVER_ID": "1",
        "AUTH_SERVER_PID": _PROCESS,
        "AUTH_SC_SERVER_HOST": _HOST,
        "AUTH_SC_DBUNIQUE_NAME": instance,
        "AUTH_SC_INSTANCE_NAME": instance,
        "AUTH_SC_INSTANCE_ID": "1",
        "AUTH_SC_INSTANCE_START_TIME": _start_time(),
        "AUTH_SC_DB_DOMAIN": "",
        "AUTH_SC_SERVICE_NAME": service.lower(),
        "AUTH_ONS_RLB_SUBSCR_PATTERN": _load_pattern(service),
        "AUTH_ONS_HA_SUBSCR_PATTERN": _HA_PATTERN,
        "AUTH_SC_REAL_DBUNIQUE_NAME": instance,
        "AUTH_INSTANCENAME": instance,
        **_nls(state.settings),
    }
    if server_response:
        pairs["AUTH_SVR_RESPONSE"] = server_response
    pairs |= {
        "AUTH_MAX_OPEN_CURSORS": "300",
        "AUTH_PDB_UID\0": _DATABASE_ID,
        "AUTH_MAX_IDEN_LENGTH": "128",
    }
    if newest:
        pairs |= {"AUTH_FLAGS": "1", "AUTH_SERVER_TYPE": "1"}
    return tuple((key, value, 0) for key, value in pairs.items())


_HA_PATTERN = '("eventType=database/event/service") | ("eventType=database/event/host")\0'


def _load_pattern(service: str) -> str:
    return f'%"eventType=database/event/servicemetrics/{service.lower()}"\0'


def _nls(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"AUTH_NLS_{key}\0": settings.get(name, value) for key, value, name, _ in LANGUAGE}


def nls_keywords(settings: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return values of the session's language settings and the numbers of their keywords."""
    return tuple((settings.get(name, value), number) for _, value, name, number in LANGUAGE)


def _start_time() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S.000000000 +00:00", time.gmtime())


_PROTOCOL = 1
_DATA_TYPES = 2
_FAST_AUTHENTICATION = 34
_UNKNOWN_SERVICE = {"SERVICE_NAME": 12514, "SID": 12505}
_INCOMPATIBLE = 12618
_END_OF_RESPONSE_INDEX = 40
_END_OF_RESPONSE_BIT = 0x20
_FIELD_VERSION_INDEX = 7


_FIRST_SID = 101
_FIRST_SERIAL = 40_001


class Accounts(Database, Protocol):
    """The database that an OracleServer serves."""

    @property
    def users(self) -> Mapping[str, User]:
        """Users by name."""


class Host:
    """A server as its connections see it."""

    def __init__(
        self,
        database: Accounts,
        *,
        mode: str = "23ai",
        verifier: str = "12c",
        sdu: int = 8192,
        charset: str = "AL32UTF8",
        triple_lengths: bool = False,
        redirect: bool = False,
        service: str = "FREEPDB1",
        vectors: bool = True,
        port: int = 0,
    ) -> None:
        """Set the kind of the server.

        Args:
            mode: `19c`, `21c` or `23ai`.
            verifier: `11g` or `12c`: how passwords are checked.
            sdu: Largest packet, in bytes; clients may ask for less.
            charset: Of the database. What clients get is UTF-8 all the same, as from a real server.
            triple_lengths: Lengths in logins are three times the real ones, as with a character set
                that has to be converted.
            redirect: The listener sends clients to another port.
            service: The only service there is.
            vectors: Leave out repeated values of rows for clients that know how.
            port: 0 is any that is free.
        """
        if verifier not in VERIFIER_FLAGS:
            raise ValueError(f"no verifier {verifier!r}")
        self.database = database
        self.mode = MODES[mode]
        self.verifier = verifier
        self.sdu = sdu
        self.charset = CHARSETS[charset]
        self.triple_lengths = triple_lengths
        self.redirects = redirect
        self.service = service
        self.vectors = vectors
        self.host = "127.0.0.1"
        self.port = port
        self.second_port = 0
        self.faults = Faults()
        self.sessions: list[SessionState] = []
        """Of every login so far, in order; the ones that have ended included."""
        self.logins: list[dict[str, str]] = []
        """Pairs of every successful login, passwords under their session keys."""
        self.connect_data: list[str] = []
        """Of every CONNECT, first ones and repeated ones."""
        self.problems: list[str] = []
        """What went wrong in the server itself."""
        self.is_closing = False
        self._lock = threading.Lock()
        self._sids = itertools.count(_FIRST_SID)

    def renumber(self, process: int, processes: int) -> None:
        """Give sessions numbers that none of the other processes of the server gives."""
        self._sids = itertools.count(_FIRST_SID + process, processes)

    def serves(self, name: str) -> bool:
        return name.upper() == self.service.upper()

    def new_state(self, user: str, pairs: Mapping[str, str]) -> SessionState:
        with self._lock:
            sid = next(self._sids)
            serial = _FIRST_SERIAL + 7 * (sid - _FIRST_SID)
            state = SessionState(user=user, schema=user, sid=sid, serial=serial)
            self.sessions.append(state)
        return state

    def report(self, error: Exception) -> None:
        self.problems.append("".join(traceback.format_exception(error)))


class Handshake:
    """Properties of a client before it has a session."""

    def __init__(
        self, host: Host, channel: Channel, opened: Callable[[SessionState], None]
    ) -> None:
        """Start before the first packet; `opened` gets a session before the client does."""
        self._host = host
        self._channel = channel
        self._opened = opened
        self._driver = ""
        self._client: Client | None = None
        self._field_version = 0
        self._login: Login | None = None
        self._calls = 0
        self._bare_texts = False

    def connect(self, *, is_redirected: bool) -> bool:
        """Answer the CONNECT; False if the client was sent away."""
        host, channel = self._host, self._channel
        request, flags = self._read_connect()
        host.connect_data.append(request.data)
        kind, name = negotiation.service_of(request.data)
        if self._fault("connect", name):
            return False
        if request.version < negotiation.LEAST_VERSION:
            channel.send(REFUSE, negotiation.refusal(_INCOMPATIBLE))
            return False
        if not host.serves(name):
            channel.send(REFUSE, negotiation.refusal(_UNKNOWN_SERVICE[kind]))
            return False
        if host.redirects and not is_redirected and not flags & REDIRECTED:
            text = negotiation.redirection(host.host, host.second_port, request.data)
            channel.send(REDIRECT, len(text).to_bytes(2, "big"), TEXT_FOLLOWS)
            channel.send(DATA, b"\0\0" + text)
            return False
        if host.mode.resends:
            channel.send(RESEND, b"")
            request, _ = self._read_connect()
        version = min(request.version, host.mode.protocol)
        sdu = negotiation.agreed_sdu(request.sdu, host.sdu)
        channel.send(ACCEPT, negotiation.accept(host.mode, version, sdu))
        channel.sdu = sdu
        channel.wide = True
        self._may_end = version >= negotiation.END_OF_RESPONSE_VERSION
        return True

    def login(self) -> Session | None:
        """Answer all requests of the login; None without a session."""
        while True:
            packet = self._channel.read()
            if packet.type != DATA or int.from_bytes(packet.body[:2], "big") & END_OF_FILE:
                return None
            reader = Reader(packet.body[2:], self._channel.read_data)
            kind = reader.u8()
            if kind == _PROTOCOL:
                self._channel.send_plain(self._protocol(reader))
            elif kind == _DATA_TYPES:
                self._channel.send_plain(self._data_types(reader))
                self._agree()
            elif kind in (calls.FUNCTION, _FAST_AUTHENTICATION):
                before = b""
                field_version = self._field_version
                if kind == _FAST_AUTHENTICATION:
                    before, field_version = self._fast(reader)
                head = Head.read(reader, field_version)
                try:
                    session = self._authenticate(head, reader, before)
                except OracleError as error:
                    send_error(self._channel, self._end(head, error))
                    return None
                if session is not None:
                    return session
            else:
                raise NotImplementedError(f"message {kind} before the login")

    def _read_connect(self) -> tuple[Connect, int]:
        packet = self._channel.read()
        if packet.type != CONNECT:
            raise Disconnected(f"packet of type {packet.type} in place of CONNECT")
        request = Connect.parse(packet.body)
        data = bytearray()
        while not request.data and len(data) < request.length:
            data += self._channel.read_data()
        return (request if request.data else request.with_data(data.decode())), packet.flags

    def _protocol(self, reader: Reader) -> bytes:
        self._driver = negotiation.parse_protocol(reader)
        return negotiation.protocol_reply(self._host.mode, charset=self._host.charset)

    def _data_types(self, reader: Reader) -> bytes:
        self._client = negotiation.parse_data_types(reader, self._driver)
        return negotiation.data_types_reply(self._client)

    def _agree(self) -> None:
        """Settle field version and end of response, now that both sides' capabilities are known."""
        client = self._known_client
        theirs = client.compile_caps[_FIELD_VERSION_INDEX]
        self._field_version = min(theirs, self._host.mode.field_version)
        ends = client.has(_END_OF_RESPONSE_INDEX, _END_OF_RESPONSE_BIT)
        self._channel.end_of_response = self._may_end and ends

    def _fast(self, reader: Reader) -> tuple[bytes, int]:
        """Read a fast authentication up to its call.

        Returns:
            The start of its reply, and the field version of the call, which a later agreement does
            not change.
        """
        reader.skip("bbbb")
        reply = self._protocol(reader)
        # Character sets; the version that the call within is written by; the next message's type.
        *_, field_version, _ = reader.raw(7)
        reply += self._data_types(reader)
        self._agree()
        reader.skip("b")
        return reply, field_version

    def _authenticate(self, head: Head, reader: Reader, before: bytes) -> Session | None:
        """Answer one call of a login; the second one, or a token, leads to a session.

        Raises:
            OracleError: The login is refused.
        """
        self._calls += 1
        request = calls.read_login(reader)
        self._bare_texts |= reader.bare_texts
        if reader.left:
            raise ValueError(f"{len(reader.left)} bytes after a login: {reader.left!r}")
        triple = self._host.triple_lengths
        if head.function == calls.LOGIN_ONE:
            self._login = self._challenge(request)
            challenge = login_parameters(self._login.challenge(), triple=triple)
            self._channel.send_reply([before, challenge, self._end(head)])
            return None
        user, proof = self._check(request)
        state = self._host.new_state(user.name, request.pairs)
        self._host.logins.append(request.pairs)
        session = Session(state, self._host.database, self._host.faults, self._terms())
        session.calls = self._calls
        self._alter_session(session, request)
        if self._fault("login", user.name):
            raise Disconnected("cut on order")
        pairs = login_pairs(
            self._host.mode,
            state,
            service=self._host.service,
            user_id=user.user_id,
            server_response=proof,
        )
        parameters = login_parameters(pairs, triple=triple)
        self._opened(state)
        nls = nls_keywords(state.settings) if self._gets_nls else ()
        end = (login_return(user.user_id, nls), self._end(head))
        self._channel.send_reply([before, parameters, *end])
        return session

    def _challenge(self, request: LoginRequest) -> Login:
        user = self._host.database.users.get(user_name(request.user))
        return Login(self._host.verifier, None if user is None else user.password)

    def _check(self, request: LoginRequest) -> tuple[User, str]:
        """Return who logs in, and the proof that the server knows the password.

        Raises:
            OracleError: ORA-01017, or ORA-28150 for a proxy that may not.
        """
        users = self._host.database.users
        token = request.pairs.get("AUTH_TOKEN")
        if token is not None:
            for user in users.values():
                if user.token is not None and user.token == token:
                    return user, ""
            raise denied()
        if self._login is None:
            raise denied()
        proof = self._login.check(request.pairs)
        user = users[user_name(request.user)]
        target = request.pairs.get("PROXY_CLIENT_NAME")
        if target is None:
            return user, proof
        client = users.get(user_name(target))
        if client is None or user.name not in client.proxies:
            raise OracleError(28150, "proxy not authorized to connect as client")
        return client, proof

    def _alter_session(self, session: Session, request: LoginRequest) -> None:
        statement = request.pairs.get("AUTH_ALTER_SESSION", "").rstrip("\0").strip()
        if statement:
            self._host.database.execute(session.state, statement)

    def _terms(self) -> Terms:
        client = self._known_client
        return Terms(
            field_version=self._field_version,
            charset=self._host.charset,
            vectors=self._host.vectors and client.vectors,
            wide_scale=client.wide_scale,
            bare_texts=self._bare_texts,
        )

    @property
    def _gets_nls(self) -> bool:
        """Language settings follow a login, but not one of 23ai by a Python or Node client."""
        return not self._host.mode.fast_authentication or self._known_client.wide_scale

    def _fault(self, call: str, subject: str) -> bool:
        """Perform an ordered fault; True if the connection must close.

        Raises:
            OracleError: It is an error, within a login.
        """
        for fault in self._host.faults.armed(call, subject):
            if not self._host.faults.claim(fault):
                continue
            if fault.error is not None:
                if call == "login":
                    raise fault.error
                self._channel.send(REFUSE, negotiation.refusal(fault.error.code))
                return True
            if fault.kind == "stall":
                self._channel.pause(fault.pause)
            else:
                self._channel.close(reset=fault.kind == "reset")
                return True
        return False

    def _end(self, head: Head, error: OracleError | None = None) -> bytes:
        outcome = Outcome(call=head.call, sequence=self._calls, error=error)
        return outcome.encode(self._field_version)

    @property
    def _known_client(self) -> Client:
        assert self._client is not None
        return self._client
