"""The output of the program: results on stdout, progress and messages on stderr."""
