"""Standard output and named pipes: written bytes go to the reader immediately."""
