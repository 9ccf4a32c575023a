"""Standard output and named pipes: what is written there has left at once."""
