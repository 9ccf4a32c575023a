"""A connection's way to its session: CONNECT, capabilities, login."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oracle_server.model import OracleError, SessionState
from oracle_server.session.authentication import Login, denied, user_name
from oracle_server.session.host import Host
from oracle_server.session.session import Session
from oracle_server.wire import calls, negotiation
from oracle_server.wire.announcements import login_return
from oracle_server.wire.calls import Head, LoginRequest
from oracle_server.wire.channel import Channel, Disconnected
from oracle_server.wire.errors import Outcome, login_parameters, send_error
from oracle_server.wire.login_pairs import login_pairs, nls_keywords
from oracle_server.wire.negotiation import Client, Connect, Terms
from oracle_server.wire.packets import (
    ACCEPT,
    CONNECT,
    DATA,
    END_OF_FILE,
    REDIRECT,
    REDIRECTED,
    REFUSE,
    RESEND,
    TEXT_FOLLOWS,
)
from oracle_server.wire.reader import Reader

if TYPE_CHECKING:
    from oracle_server.data.catalog import User

_PROTOCOL = 1
_DATA_TYPES = 2
_FAST_AUTHENTICATION = 34
_UNKNOWN_SERVICE = {"SERVICE_NAME": 12514, "SID": 12505}
_INCOMPATIBLE = 12618
_END_OF_RESPONSE_INDEX = 40
_END_OF_RESPONSE_BIT = 0x20
_FIELD_VERSION_INDEX = 7


class Handshake:
    """What is known of a client before it has a session."""

    def __init__(
        self, host: Host, channel: Channel, opened: Callable[[SessionState], None]
    ) -> None:
        """Start before the first packet; `opened` is told of a session before its client is."""
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
        """Answer everything up to the end of the login; None if there is no session."""
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
            What its reply starts with, and the field version that the call is written by, whatever
            is agreed on later.
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
        """Let an ordered fault happen; True if the connection is to be closed.

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
