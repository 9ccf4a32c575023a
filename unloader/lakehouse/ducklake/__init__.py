"""DuckLake, through DuckDB and its extension."""
