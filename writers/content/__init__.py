"""Checksums of the values of columns, whatever the order of rows: of batches and of files."""
