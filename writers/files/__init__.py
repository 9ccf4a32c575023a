"""From bytes to finished files: overlapped I/O, checksums, staging, publishing, reading back."""
