"""From a request to the executor on its cluster: connected, checked, seated.

Mutual TLS with a cluster: where certificates and key are, and whether the scheduler takes them.

Our own handshake first tries whether both sides trust one another: the library was seen to wait
forever for a scheduler that does not trust it.
"""

from __future__ import annotations

import logging
import socket
import ssl
import tempfile
import tomllib
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from numa.model import ProcessLimits
from numa.topology import detect
from unloader.engine.cluster.agent import Opening, machine_id
from unloader.engine.cluster.executor import DaskExecutor, Stop, in_time
from unloader.errors import ConfigError, ConnectFailed, Interrupted, UsageError
from unloader.model import ClusterOptions, Preload, Request
from unloader.nouns import are, counted
from unloader.placement.seating import Seating, SeatPlan, most_workers
from unloader.request.settings import own_workers
from unloader.sources.registry import source_of
from writers.files.regular import read_regular

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 20.0
"""How long an agent or the parent may be silent: `--stall-timeout` within these limits."""
_CONNECT_SECONDS = 30.0
_LEAVE_SECONDS = 2.0
_LOGGERS = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application")


@contextmanager
def open_cluster(
    request: Request,
    parallelism: int | None,
    *,
    entry: str,
    warm_up: Preload,
    limits: ProcessLimits,
    stop: Stop,
) -> Iterator[tuple[SeatPlan, DaskExecutor]]:
    """Open an executor with a seat for each worker; all processes are gone at the end."""
    patience = min(max(request.retry.stall_seconds or _MOST_SECONDS, _LEAST_SECONDS), _MOST_SECONDS)
    pattern = Opening(
        agent="",
        entry=entry,
        limits=limits,
        options=request.seats,
        warm_up=warm_up,
        looks=request.seats.numa != "off",
        seats_of_machine=0,
        places=(),
        lease_seconds=patience,
    )
    assert request.cluster is not None
    with (
        _connected(request.cluster, stop) as client,
        closing(DaskExecutor(client, pattern, request.source.kind, stop)) as executor,
    ):
        yield _seated(request, parallelism, executor), executor


def ask_workers(
    options: ClusterOptions,
    stop: Stop,
    seconds: float,
    function: Callable[..., Awaitable[T]],
    *arguments: object,
) -> dict[str, T]:
    """Return the answers of a function of all Dask workers, which run it at the same time."""
    with _connected(options, stop) as client:
        try:
            answers = in_time(partial(client.run, function, *arguments), seconds, stop)
        except Interrupted:
            raise
        # The library has no common class for errors of a worker.
        except Exception as error:
            raise ConnectFailed(
                f"the Dask workers cannot be asked: {str(error).strip() or type(error).__name__}",
                "install the same unloader on all machines of the cluster",
            ) from error
        if not answers:
            raise ConfigError("the cluster has no Dask worker", "start one with: dask worker")
        return cast("dict[str, T]", answers)


@contextmanager
def _connected(options: ClusterOptions, stop: Stop) -> Iterator[Client]:
    """Connect to the scheduler, or start a cluster on this machine for `local:N`."""
    assert options.address is not None
    address, own = options.address, own_workers(options.address)
    if address.startswith("tls://") and options.security is None:
        raise ConfigError(
            f"{address} needs certificates",
            "give --cluster-security DIRECTORY, see docs/cluster.md",
        )
    if options.security is not None and not address.startswith("tls://"):
        raise ConfigError(
            f"--cluster-security does not apply to {address}, which is not encrypted",
            "write tls://HOST:PORT, or leave --cluster-security out",
        )
    try:
        import dask

        # Read while the library is imported; a program that has imported it keeps its own log.
        dask.config.set({"distributed.logging": dict.fromkeys(_LOGGERS, "critical")})
        import distributed
    except ImportError as error:
        raise ConfigError(
            f"--cluster needs Dask, which is not installed: {error}",
            "install it with: pip install 'unloader[dask]'",
        ) from error
    warnings.filterwarnings("ignore", module=r"distributed\b")
    library = distributed
    certificates = None if options.security is None else certificates_at(options.security)
    if not own:
        context = None
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # As in Dask: each owner of a certificate of the authority belongs to the cluster.
            context.check_hostname = False
            ca, cert, key = (certificates[each] for each in _FIELDS.values())
            try:
                context.load_verify_locations(ca)
                context.load_cert_chain(cert, key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"the certificates of --cluster-security cannot be used ({ca}, {cert}, {key}): "
                    f"{error}",
                    "give the certificate authority, the certificate and its key as PEM files",
                ) from error
        parts = urlsplit(address)
        try:
            with socket.create_connection((parts.hostname, parts.port or 8786), _SECONDS) as plain:
                if context is not None:
                    with context.wrap_socket(plain) as secure:
                        # With TLS 1.3 the first read after the handshake reports a refused
                        # certificate. A scheduler that takes it speaks first.
                        if not secure.recv(1):
                            raise ssl.SSLError("the scheduler has closed the connection")
        except ssl.SSLError as error:
            raise ConfigError(
                f"the scheduler at {address} and this run do not trust each other: "
                f"{error.reason or error}",
                "give the certificates of the cluster's certificate authority with "
                "--cluster-security",
            ) from error
        except OSError as error:
            raise ConnectFailed(
                f"no scheduler answers at {address}: {error}",
                "check the address, and start one with: dask scheduler",
            ) from error
    security = library.Security(require_encryption=True, **certificates) if certificates else None
    with ExitStack() as held:
        try:
            if own:
                scratch = held.enter_context(tempfile.TemporaryDirectory(prefix="unloader-dask-"))
                cluster = library.LocalCluster(
                    n_workers=own,
                    threads_per_worker=1,
                    processes=False,
                    protocol="tcp",  # Listens on 127.0.0.1 alone.
                    memory_limit=0,
                    dashboard_address=None,
                    local_directory=scratch,
                    silence_logs=logging.CRITICAL,
                )
                held.callback(cluster.close)
            connect = partial(
                library.Client,
                cluster if own else address,
                timeout=_CONNECT_SECONDS,
                security=security,
                set_as_default=False,
                name="unloader",
            )
            # The library was seen to wait forever for a server that is not a scheduler.
            client = in_time(connect, _CONNECT_SECONDS, stop)
        except Interrupted:
            raise
        # The library has no common class for errors of a connection.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConnectFailed(
                f"the scheduler at {address} cannot be used: {reason}",
                "check the address, and check that a Dask scheduler of a compatible version runs "
                "there",
            ) from error
        try:
            yield client
        finally:
            with suppress(Exception):  # The scheduler may be gone.
                client.close(timeout=_LEAVE_SECONDS)


def _seated(request: Request, parallelism: int | None, executor: DaskExecutor) -> SeatPlan:
    """Open the agents of a run, and return the seats that they have."""
    homes = executor.greet()
    reason = source_of(request.source.kind).one_machine
    others = [home for home in homes if home.machine != machine_id()]
    if reason and others:
        raise UsageError(
            f"{request.source.kind} cannot be read from {others[0].label}, which is on another "
            f"machine: {reason}",
            "run without --cluster, or with --cluster local:N",
        )
    threads = sum(home.threads for home in homes)
    wanted = most_workers(request, parallelism, threads)
    seats = executor.open(min(wanted, threads), homes)
    notices = executor.notices
    if wanted > threads:
        text = (
            f"the cluster has {counted(threads, 'thread')}, so {threads} of {wanted} workers "
            f"{are(threads)} used"
        )
        notices = (*notices, text)
    return SeatPlan(
        topology=detect(),
        # The agents have decided where the seats are.
        options=replace(request.seats, numa="off"),
        seating=Seating(seats=seats, memory_policy="local", notices=notices),
    )


_FIELDS = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
"""The fields of `distributed.Security`."""
_SECONDS = 10.0


def certificates_at(path: str) -> Mapping[str, str]:
    """Return `Security`'s arguments from a directory, or from a TOML file with paths."""
    place = Path(path)
    advice = (
        "give a directory with ca.pem, cert.pem and key.pem, or a TOML file with lines such as: "
        'ca = "ca.pem", for ca, cert and key'
    )
    base, names = place, {name: f"{name}.pem" for name in _FIELDS}
    if not place.is_dir():
        base = place.parent
        try:
            names = tomllib.loads(read_regular(place, follow=True).decode())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"--cluster-security {place} cannot be read: {reason}", advice
            ) from error
    found = {}
    for name, field in _FIELDS.items():
        if not isinstance(names.get(name), str):
            raise ConfigError(f"--cluster-security {path} does not name {name}", advice)
        file = base / names[name]
        if not file.is_file():
            raise ConfigError(
                f"--cluster-security {path}: the {name} file {file} does not exist", advice
            )
        found[field] = str(file)
    return found
