"""Parquet files: their options, how each column is encoded, where row groups end."""
