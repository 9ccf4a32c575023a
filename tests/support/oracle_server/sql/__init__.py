"""Statements: read, and run over the tables they name."""
