"""What the user asked for: the request, and how its names, URLs, sizes and job files are read."""
