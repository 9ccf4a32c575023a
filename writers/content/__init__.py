"""Checksums of the values of columns, for any order of rows: of batches and of files."""
