"""A server that speaks Oracle's wire protocol, for tests with real Oracle clients."""

from oracle_server.faults import Fault
from oracle_server.server import OracleServer

__all__ = ["Fault", "OracleServer"]
