"""Local directories: files are staged, and published all together or not at all."""
