"""What the command line makes of job files: their schema, their check, and a first draft."""
