"""Delimited text and records of fixed width; the plain encoder here defines the bytes."""
