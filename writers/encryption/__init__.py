"""Files that only the holder of a key can read: age for text, Parquet's own encryption."""
