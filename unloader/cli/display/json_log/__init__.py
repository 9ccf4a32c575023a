"""The log as JSON lines: what each line holds, how it is written, its schema."""
