"""DuckLake catalogs, by a DuckDB that has the extension."""
