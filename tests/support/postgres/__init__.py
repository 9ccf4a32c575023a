"""Tables and clients of the PostgreSQL server."""
