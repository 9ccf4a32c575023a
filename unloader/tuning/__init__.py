"""Tuning: what measured levels of parallelism say of the best one, and of what limits it."""
