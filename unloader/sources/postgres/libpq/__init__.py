"""PostgreSQL's own client library, called through ctypes: sessions, values, COPY."""
