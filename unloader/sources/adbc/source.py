"""ADBC: any database with a driver as a Python package or as a shared library."""

from __future__ import annotations

from unloader.request.locations import UrlForm
from unloader.sources.dialects.source import DriverSource
from unloader.sources.registry import OPTIONS


class AdbcSource(DriverSource):
    """Databases with an ADBC driver, by `adbc://NAME?uri=...`."""

    scheme = "adbc"
    summary = "any database with an ADBC driver: adbc://DRIVER?uri=..."
    url = UrlForm(written="adbc://DRIVER?OPTION=VALUE", what="other")
    extra = "adbc"
    driver = "adbc-driver-manager"
    options = OPTIONS["adbc"]
