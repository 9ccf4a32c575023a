"""A run over several tables: one snapshot, one set of workers, each table published by itself."""
