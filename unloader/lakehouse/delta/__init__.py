"""Delta Lake, through deltalake (delta-rs)."""
