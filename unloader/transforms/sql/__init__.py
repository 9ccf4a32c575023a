"""SQL over the rows of a batch, by DuckDB, in a session that reaches nothing else."""
