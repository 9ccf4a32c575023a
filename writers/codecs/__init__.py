"""Compression: independent frames, what makes them, and which codec suits some rows."""
