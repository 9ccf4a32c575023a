"""Catalogs of Iceberg in a file, and readers of tables of Iceberg and Delta."""
