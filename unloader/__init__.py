"""Unload big database tables to CSV or Parquet: fast, exact, from one consistent point in time."""

from writers import __version__

__all__ = ["__version__"]
