"""A client from its connection to its end, and the calls of its session."""
