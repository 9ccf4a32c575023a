"""One scan into several outputs: what is common to them, and what becomes of one that fails."""
