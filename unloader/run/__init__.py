"""Running: units to workers, results back, failures retried, the output published."""
