"""Any database with an ODBC driver."""
