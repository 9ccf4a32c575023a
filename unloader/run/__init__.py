"""One run: its units through the engine, its outputs, the count, publishing."""
