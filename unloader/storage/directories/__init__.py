"""Local directories: staged files, published all at once or not at all."""
