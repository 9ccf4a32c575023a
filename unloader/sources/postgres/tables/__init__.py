"""All tables of a PostgreSQL database at once: the list of them, and many described together."""
