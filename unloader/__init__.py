"""Unload big database tables to CSV or Parquet: fast, exact, from one consistent point in time."""

__version__ = "0.1.0"
