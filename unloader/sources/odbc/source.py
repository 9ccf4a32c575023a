"""ODBC: any database with a driver for unixODBC."""

from __future__ import annotations

from unloader.request.locations import UrlForm
from unloader.sources.dialects.source import DriverSource
from unloader.sources.registry import OPTIONS


class OdbcSource(DriverSource):
    """Databases with an ODBC driver, by `odbc:DSN=...` or `odbc:Driver={...};...`."""

    scheme = "odbc"
    summary = "any database with an ODBC driver: odbc:DSN=name or odbc:Driver={...};Server=..."
    url = UrlForm(written="odbc:DSN=NAME;UID=USER", what="other")
    extra = "odbc"
    driver = "arrow-odbc"
    options = OPTIONS["odbc"]
