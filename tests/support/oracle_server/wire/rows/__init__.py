"""Columns, rows and LOBs as messages carry them."""
