"""Parquet files whose pages are encoded by a native library; pyarrow decides their contents."""
