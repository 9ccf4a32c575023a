"""Any database with an ADBC driver."""
