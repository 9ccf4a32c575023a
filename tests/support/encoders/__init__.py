"""What writers are given, which encoders there are, and how files are read back."""
