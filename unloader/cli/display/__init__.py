"""What the program shows: results on stdout, progress and messages on stderr."""
