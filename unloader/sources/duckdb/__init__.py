"""DuckDB files."""
