"""Runs into directories without a database, also broken ones."""
