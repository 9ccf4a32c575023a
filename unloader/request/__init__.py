"""The user's request, and how its names, URLs, sizes and job files are read."""
