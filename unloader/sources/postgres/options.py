"""The options that PostgreSQL sources know, besides the options of every source."""

from __future__ import annotations

OPTIONS = ("enable-row-security", "keep-snapshot", "lock-timeout", "max-db-load")
