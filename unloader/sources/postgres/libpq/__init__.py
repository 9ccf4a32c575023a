"""Sessions of libpq through psycopg, and the loops over the rows of a COPY."""
