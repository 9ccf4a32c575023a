"""Record batches in, finished files out.

Delimited text and Parquet writers, compression, overlapped I/O, staging. The package stands
alone: it knows nothing of databases, plans or command lines, and never imports its neighbours.
"""

__version__ = "0.1.0"
"""Of the whole distribution. Parquet files name it as their writer's."""
