"""Choosing a codec by measuring a sample of the rows."""
