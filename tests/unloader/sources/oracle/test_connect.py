"""Connecting to Oracle: every way to connect, and the error where none works."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from certificates import self_signed
from oracle.leg import PASSWORD, database, source
from oracle.runs import closed_port
from oracle_server import Fault, OracleServer

from unloader.errors import ConfigError, SourceError, TransientSourceError
from unloader.model import SourceSpec
from unloader.sources.oracle.session import Session, open_connection

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def server() -> Iterator[OracleServer]:
    """A server whose user SCOTT lets HR in through his account."""
    made = database()
    made.users["SCOTT"].proxies.add("HR")
    with OracleServer(made) as running:
        yield running


def user_of(spec: SourceSpec) -> str:
    """Return who a session of the source is."""
    session = Session(spec, action="test")
    found: str = session.value("SELECT USER FROM DUAL")
    session.close()
    return found


def descriptor(server: OracleServer) -> str:
    """Return a connect descriptor of the server."""
    return (
        f"(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST={server.host})(PORT={server.port}))"
        f"(CONNECT_DATA=(SERVICE_NAME={server.service})))"
    )


def test_easy_connect_with_settings(server: OracleServer, tmp_path: Path) -> None:
    """Settings of the URL reach the driver, a second host is in for one that is not there."""
    with closed_port(server.host) as port:
        hosts = f"{server.host}:{port},{server.host}:{server.port}"
        url = f"oracle://scott@{hosts}/{server.service}?retry_count=1&retry_delay=1&sdu=4096"
        connection = open_connection(source(server, tmp_path, url=url))
        assert connection.sdu == 4096
        connection.close()


def test_alias_and_descriptor(
    server: OracleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alias is looked up in TNS_ADMIN or config_dir, a descriptor taken as it is."""
    (tmp_path / "tnsnames.ora").write_text(f"SALES.WORLD =\n {descriptor(server)}\n")
    by_alias = source(server, tmp_path, url=f"oracle://scott@sales.world?config_dir={tmp_path}")
    assert user_of(by_alias) == "SCOTT"
    assert user_of(source(server, tmp_path, url=f"oracle://scott@{descriptor(server)}")) == "SCOTT"
    unknown = source(server, tmp_path, url=f"oracle://scott@NOWHERE?config_dir={tmp_path}")
    with pytest.raises(SourceError, match=r"DPY-4000.*NOWHERE") as caught:
        open_connection(unknown)
    assert "TNS_ADMIN" in caught.value.hint


def test_proxy_user(server: OracleServer, tmp_path: Path) -> None:
    """A proxy's password opens the session of the user in brackets."""
    url = server.url("hr[scott]")
    assert user_of(source(server, tmp_path, url=url)) == "SCOTT"
    other = server.url("scott[hr]")
    with pytest.raises(SourceError, match="ORA-"):
        open_connection(source(server, tmp_path, url=other))


@pytest.mark.parametrize("password", ["wrong", ""])
def test_a_wrong_password(server: OracleServer, tmp_path: Path, password: str) -> None:
    """It is refused in the database's words, says where the password is set and tells none."""
    spec = source(server, tmp_path, password=password)
    with pytest.raises(SourceError, match=r"ORA-01017|DPY-4001|ORA-01005") as caught:
        open_connection(spec)
    assert "UNLOADER_PASSWORD" in caught.value.hint
    assert PASSWORD not in str(caught.value)
    assert not caught.value.retryable


def test_no_password_at_all(server: OracleServer) -> None:
    """Without any credential the hint names every place there is for one."""
    spec = SourceSpec(kind="oracle", location=server.url("scott"))
    with pytest.raises(SourceError, match="DPY-4001") as caught:
        open_connection(spec)
    assert "--password-file" in caught.value.hint


def test_a_wrong_service(server: OracleServer, tmp_path: Path) -> None:
    """The listener's refusal names the service and where to look."""
    url = f"oracle://scott@{server.host}:{server.port}/NOSUCH"
    with pytest.raises(SourceError, match="NOSUCH") as caught:
        open_connection(source(server, tmp_path, url=url))
    assert "service name" in caught.value.hint


def test_nobody_listens(server: OracleServer, tmp_path: Path) -> None:
    """A port without a listener is worth another try, and the hint names the checks."""
    with closed_port(server.host) as port:
        url = f"oracle://scott@{server.host}:{port}/S"
        with pytest.raises(TransientSourceError, match="refused") as caught:
            open_connection(source(server, tmp_path, url=url))
        assert "host and port" in caught.value.hint


def test_a_silent_listener(server: OracleServer, tmp_path: Path) -> None:
    """A listener that says nothing is given up; waited for, it would let us in at last."""
    fault = server.faults.add(Fault(kind="stall", call="connect", seconds=3))
    with pytest.raises(TransientSourceError, match=r"no answer in 0\.3 s"):
        open_connection(source(server, tmp_path), patience_seconds=0.3)
    assert fault.happened.wait(60)


def test_an_account_that_is_locked(server: OracleServer, tmp_path: Path) -> None:
    """A locked account is named as such, with what a DBA has to do."""
    server.faults.add(Fault(kind="ora-28000", call="login"))
    with pytest.raises(SourceError, match="ORA-28000") as caught:
        open_connection(source(server, tmp_path))
    assert "ACCOUNT UNLOCK" in caught.value.hint


def test_a_client_library_that_is_not_there(server: OracleServer, tmp_path: Path) -> None:
    """Thick mode is asked for by name, and a directory without the library is named."""
    script = (
        "import sys\n"
        "from unloader.errors import ConfigError\n"
        "from unloader.model import SessionOptions, SourceSpec\n"
        "from unloader.sources.oracle.session import open_connection\n"
        "session = SessionOptions(client_library=sys.argv[1])\n"
        "spec = SourceSpec(kind='oracle', location=sys.argv[2], session=session)\n"
        "try:\n"
        "    open_connection(spec)\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), server.url("scott")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert str(tmp_path) in done.stdout
    assert "DPI-1047" in done.stdout
    assert "--client-library" in done.stdout


def token(until: datetime) -> str:
    """Return a token of the form that the driver looks into for its end."""
    parts = ({"alg": "none"}, {"exp": int(until.timestamp())})
    texts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join((*texts, "signature"))


# The driver drops the socket of a failed TLS handshake without closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls_and_wallet(tmp_path: Path) -> None:
    """TLS is checked against the wallet; without one, or with none there, it is refused."""
    made = database()
    pem = self_signed(tmp_path / "ewallet.pem", "127.0.0.1", "oracle.test")
    with OracleServer(made, tls=pem) as server:
        place = f"{server.host}:{server.port}/{server.service}?protocol=tcps"
        wallet = f"{place}&wallet_location={tmp_path}&ssl_server_cert_dn=CN=oracle.test"
        assert user_of(source(server, tmp_path, url=f"oracle://scott@{wallet}")) == "SCOTT"
        with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
            open_connection(source(server, tmp_path, url=f"oracle://scott@{place}"))
        of_another_host = f"oracle://scott@{place}&wallet_location={tmp_path}"
        with pytest.raises(SourceError, match=f"DPY-6005.*{server.host}|not match"):
            open_connection(source(server, tmp_path, url=of_another_host))
        unchecked = f"{of_another_host}&ssl_server_dn_match=false"
        assert user_of(source(server, tmp_path, url=unchecked)) == "SCOTT"
        with pytest.raises(SourceError, match="DPY-2018") as caught:
            open_connection(
                source(server, tmp_path, url=f"oracle://scott@{place}&wallet_location=/nowhere")
            )
        assert "wallet_location" in caught.value.hint


def test_a_token_needs_tls(
    server: OracleServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A token is not sent in the clear, and a file without one is reported."""
    monkeypatch.setenv("UNLOADER_ORACLE_TOKEN", token(datetime.now(UTC) + timedelta(hours=1)))
    place = f"oracle://@{server.host}:{server.port}/{server.service}"
    with pytest.raises(SourceError, match="DPY-2034") as caught:
        open_connection(SourceSpec(kind="oracle", location=place))
    assert "protocol=tcps" in caught.value.hint
    monkeypatch.setenv("UNLOADER_ORACLE_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="token file cannot be read"):
        open_connection(SourceSpec(kind="oracle", location=place))
